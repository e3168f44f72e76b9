package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/ocibridge/ocibridge/internal/app/serve"
	"github.com/ocibridge/ocibridge/internal/base/files"
)

// TestSettingsAreReadAgain checks that flags and variables keep their values at a reload, and
// that other settings change with the configuration file. A setting that the file no longer
// contains returns to its default.
func TestSettingsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("TF_CLI_CONFIG_FILE", os.DevNull)
	t.Setenv("OCIBRIDGE_METRICS_LISTEN", "localhost:9090")
	file := filepath.Join(dir, "ocibridge.hcl")
	f := &serveFlags{}
	cmd := f.command()
	if err := cmd.ParseFlags([]string{"--config", file, "--tls-cert", "tls.pem", "--tls-key", "tls.key"}); err != nil {
		t.Fatal(err)
	}
	if err := variables(cmd); err != nil {
		t.Fatal(err)
	}
	load := func(text string) (serve.Settings, string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := f.load(cmd, &files.Snapshot{})
		if err != nil {
			t.Fatal(err)
		}
		g := s.Config.Gateway
		return s, fmt.Sprint(g.Listen, g.MetricsListen, g.HTTP, g.TLS.CertFile, s.LogLevel, s.Repositories.DataFolder == "/data", s.Config.PullThrough != nil)
	}
	const gateway = "gateway {\n  listen = \"localhost:1234\"\n  metrics_listen = \"localhost:1\"\n  tls {\n    cert_file = \"other.pem\"\n    key_file = \"other.key\"\n    self_signed = false\n  }\n}\n"
	first, got := load("log_level = \"warn\"\ndata = \"/data\"\npull_through {\n  enabled = false\n}\n" + gateway)
	if want := fmt.Sprint("localhost:1234", "localhost:9090", false, "tls.pem", slog.LevelWarn, true, true); got != want || first.Config.PullThrough.Enabled {
		t.Errorf("%s, want %s", got, want)
	}
	_, got = load("# nothing\n")
	if want := fmt.Sprint("localhost:8443", "localhost:9090", false, "tls.pem", slog.LevelInfo, false, false); got != want {
		t.Errorf("without settings in the file: %s, want %s", got, want)
	}
	if first.Config.Gateway.Listen != "localhost:1234" {
		t.Error("settings that were read before have changed")
	}
}
