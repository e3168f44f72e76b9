// Package loginfiles provides login files and credential helpers, as docker has them.
package loginfiles

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// JSON returns the content of a login file. The file has one entry for each argument
// HOST=USER:PASSWORD.
func JSON(entries ...string) string {
	auths := map[string]any{}
	for _, e := range entries {
		key, userinfo, _ := strings.Cut(e, "=")
		auths[key] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(userinfo))}
	}
	b, _ := json.Marshal(map[string]any{"auths": auths})
	return string(b)
}

// Read returns a function that reads the files, which are in memory, as [os.ReadFile] does.
func Read(files map[string]string) func(name string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if s, ok := files[name]; ok {
			return []byte(s), nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
}

// Helper puts the program docker-credential-NAME on PATH. The program is a shell
// script that reads the requested server into $server, appends $server to a file, and then
// runs script. The returned function returns the servers that were requested so far.
func Helper(t *testing.T, name, script string) func() string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the helper is a shell script")
	}
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	src := "#!/bin/sh\n[ \"$1\" = get ] || exit 64\nserver=$(cat)\necho \"$server\" >> '" + asked + "'\n" + script + "\n"
	if err := os.WriteFile(filepath.Join(dir, "docker-credential-"+name), []byte(src), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return func() string {
		b, _ := os.ReadFile(asked)
		return strings.TrimSpace(strings.ReplaceAll(string(b), "\n", " "))
	}
}
