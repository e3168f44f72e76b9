package moduledoc_test

import (
	"context"
	"os"
	"testing"

	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
)

func TestMain(m *testing.M) {
	cost.InChild(readZip)
	os.Exit(m.Run())
}

// readZip reads the module in a zip file. It runs in a process of its own, which [cost.OfChild] measures.
func readZip(args []string) error {
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	_, err = moduledoc.Read(context.Background(), data, "")
	return err
}
