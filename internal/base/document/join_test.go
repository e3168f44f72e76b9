package document_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/document"
)

// TestJoin shows that the members of all objects are kept in order, and that nothing is escaped for HTML.
func TestJoin(t *testing.T) {
	for want, parts := range map[string][]any{
		`{}`:                     nil,
		`{"b":1,"a":">= 1 & 2"}`: {map[string]int{"b": 1}, struct{}{}, map[string]string{"a": ">= 1 & 2"}},
		`{"a":[{}]}`:             {struct{}{}, map[string][]struct{}{"a": {{}}}},
	} {
		if got, err := document.Join(parts...); err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
	if _, err := document.Join(map[string]any{"a": func() {}}); err == nil {
		t.Error("a function is encoded")
	}
}
