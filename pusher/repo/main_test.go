package repo_test

import (
	"testing"

	"github.com/ocibridge/ocibridge/internal/testkit/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
