package cliconfig

import (
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// TestInvalidLiteral shows that a panic of the library becomes an error with a hint.
func TestInvalidLiteral(t *testing.T) {
	err := func() (err error) {
		defer invalidLiteral("/home/u/.tofurc", &err)
		panic("odd literal")
	}()
	if err == nil || !strings.HasPrefix(err.Error(), "/home/u/.tofurc does not parse") || hint.Of(err) == "" {
		t.Errorf("error %v, hint %q", err, hint.Of(err))
	}
}
