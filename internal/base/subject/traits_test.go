package subject

import "testing"

type made struct {
	Address
	kind Kind
}

func (m made) Kind() Kind { return m.kind }

// TestTraits shows that every kind has traits, and that a kind without traits is not taken for one with the zero traits.
func TestTraits(t *testing.T) {
	for _, k := range Kinds {
		if of := TraitsOf(made{kind: k}); of.List == "" || of.Push == "" || of.Replace == "" || of.Plural == "" || of.Copied == "" || of.Page == "" {
			t.Errorf("a trait is missing of a %s", k)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a kind without a row has traits")
		}
	}()
	TraitsOf(made{kind: "policy"})
}
