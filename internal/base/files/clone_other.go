//go:build !linux && !darwin && !windows

package files

import (
	"errors"
	"os"
)

func clone(*os.File, string, os.FileMode) error { return errors.ErrUnsupported }
