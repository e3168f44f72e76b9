package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/ocibridge/ocibridge/internal/app/config"
	"github.com/ocibridge/ocibridge/internal/base/files"
)

// TestDefaults checks that config show and the reference page state the defaults of the flags.
func TestDefaults(t *testing.T) {
	b, err := json.Marshal(new(config.Config).Effective(config.Surroundings{}))
	if err != nil {
		t.Fatal(err)
	}
	var settings []struct {
		Path  string
		Value any
	}
	if err := json.Unmarshal(b, &settings); err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{"jobs": "jobs", "gateway.listen": "listen", "gateway.tls.self_signed": "tls-self-signed"}
	for _, s := range settings {
		name, ok := flags[s.Path]
		if !ok {
			continue
		}
		delete(flags, s.Path)
		flag := newServeCommand().Flags().Lookup(name)
		if flag == nil {
			flag = newPushCommand().Flags().Lookup(name)
		}
		if got := fmt.Sprint(s.Value); got != flag.DefValue {
			t.Errorf("%s is %s by default, --%s is %s", s.Path, got, name, flag.DefValue)
		}
	}
	if len(flags) > 0 {
		t.Errorf("no defaults for %v", flags)
	}
}

// TestFlagsOfTheFileExist checks that serve, push or gc has each flag that the configuration
// file can set.
func TestFlagsOfTheFileExist(t *testing.T) {
	for _, name := range config.Flags() {
		has := func(cmd *cobra.Command) bool { return cmd.Flags().Lookup(name) != nil }
		if !slices.ContainsFunc([]*cobra.Command{newServeCommand(), newPushCommand(), newGCCommand()}, has) {
			t.Errorf("no command has --%s", name)
		}
	}
}

// TestHomeWithoutVariable checks that the program finds the home folder if HOME is not set.
// Many services and containers do not set HOME.
func TestHomeWithoutVariable(t *testing.T) {
	for _, name := range []string{"HOME", "USERPROFILE", "XDG_DATA_HOME"} {
		t.Setenv(name, "")
	}
	u, err := user.Current()
	if err != nil || u.HomeDir == "" {
		t.Fatalf("%+v, %v", u, err)
	}
	for what, home := range map[string]string{"logins": authEnvironment().Home, "the configuration": configEnvironment(t.Context(), nil).Home} {
		if home != u.HomeDir {
			t.Errorf("%s are looked for in %q, want %q", what, home, u.HomeDir)
		}
	}
	if dir := defaultDataFolder(); !strings.HasPrefix(dir, u.HomeDir) {
		t.Errorf("data is in %q", dir)
	}
}

// TestReadsAreBounded checks that reading a file over the size limit is an error. There must
// be a limit, because a variable can name a device that never ends.
func TestReadsAreBounded(t *testing.T) {
	large := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(large, make([]byte, files.MaxSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(string) ([]byte, error){"logins": authEnvironment().ReadFile, "the configuration": configEnvironment(t.Context(), nil).ReadFile} {
		if b, err := read(large); err == nil || !strings.Contains(err.Error(), "more than 4 MiB") {
			t.Errorf("%s: %d bytes, %v", what, len(b), err)
		}
	}
	t.Setenv("TF_CLI_CONFIG_FILE", large)
	var stderr strings.Builder
	if _, err := loadCLIConfig(t.Context(), &stderr, nil); err != nil || !strings.Contains(stderr.String(), "was not read: it has more than 4 MiB") {
		t.Errorf("%v, %q", err, stderr.String())
	}
}
