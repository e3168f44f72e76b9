package pusher_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/test/testkit/pushbench"
)

// bench is the bench of this package's tests.
type bench struct{ *pushbench.Bench }

func newBench(t *testing.T) *bench { return &bench{pushbench.New(t)} }
