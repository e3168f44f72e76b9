package serve

import (
	"errors"
	"testing"
)

type closer struct{ closed int }

func (c *closer) Close() error { c.closed++; return nil }

func TestPool(t *testing.T) {
	var p pool
	opened := 0
	open := func() (*closer, error) { opened++; return &closer{}, nil }
	a, doneA, err := share(&p, "key", open)
	if err != nil {
		t.Fatal(err)
	}
	b, doneB, _ := share(&p, "key", open)
	other, _, _ := share(&p, "other", open)
	if a != b || a == other || opened != 2 {
		t.Errorf("%d opened for two keys", opened)
	}
	doneA()
	if a.closed != 0 {
		t.Error("a resource is closed while it is used")
	}
	doneB()
	if a.closed != 1 || other.closed != 0 {
		t.Errorf("closed %d and %d times", a.closed, other.closed)
	}
	if c, _, _ := share(&p, "key", open); c == a || a.closed != 1 {
		t.Errorf("a closed resource is shared again, or was closed %d times", a.closed)
	}
	trouble := errors.New("trouble")
	for range 2 {
		if _, _, err := share(&p, "bad", func() (*closer, error) { return nil, trouble }); err != trouble {
			t.Errorf("a resource that cannot be opened: %v, want %v", err, trouble)
		}
	}
}
