package moduleorigin_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/cost"
	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
)

func TestMain(m *testing.M) {
	cost.InChild(fetchAndPack)
	leaks.Main(m)
}
