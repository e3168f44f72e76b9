package embedded_test

import (
	"os"
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/leaks"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == gcProcessArg {
		runGCProcess(os.Args[2:])
		return
	}
	leaks.Main(m)
}
