package markdown_test

import (
	"os"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/markdown"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

func TestMain(m *testing.M) {
	cost.InChild(renderFile)
	os.Exit(m.Run())
}

// renderFile renders the text in a file. It runs in a process of its own, which [cost.OfChild] measures.
func renderFile(args []string) error {
	src, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	_, err = markdown.Render(src, options)
	return err
}
