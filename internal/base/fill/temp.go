package fill

import "os"

// Temp is a temporary file that is removed once it is closed.
type Temp struct {
	*os.File
	name string // "" if the file has no name
}

// NewTemp creates a temporary file in dir, or in the system's temporary folder if dir is "". The pattern has the syntax of
// [os.CreateTemp]. The file keeps its name only on systems that require one.
func NewTemp(dir, pattern string) (*Temp, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	if f := namelessFile(dir); f != nil {
		return &Temp{File: f}, nil
	}
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	if os.Remove(f.Name()) == nil { // Windows does not remove an open file
		return &Temp{File: f}, nil
	}
	return &Temp{f, f.Name()}, nil
}

// Close closes the file and removes it.
func (t *Temp) Close() error {
	err := t.File.Close()
	if t.name != "" {
		_ = os.Remove(t.name)
	}
	return err
}
