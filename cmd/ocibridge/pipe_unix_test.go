//go:build !windows

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNamedPipes shows that a named pipe in place of a file is an error, or is waited for until
// the first interrupt.
func TestNamedPipes(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	module := filepath.Join(dir, "module")
	for _, err := range []error{syscall.Mkfifo(pipe, 0o600), os.Mkdir(module, 0o755), syscall.Mkfifo(filepath.Join(module, ".terraformignore"), 0o600),
		os.WriteFile(filepath.Join(module, "main.tf"), nil, 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TF_CLI_CONFIG_FILE", os.DevNull)
	t.Setenv("REGISTRY_AUTH_FILE", pipe)
	for what, tt := range map[string]struct {
		args   []string
		waits  bool
		stderr string
	}{
		"configuration":        {[]string{"list", "--config", pipe}, true, "interrupted"},
		"checked":              {[]string{"config", "check", pipe}, true, "interrupted"},
		"CA":                   {[]string{"list", "--ca-file", pipe}, true, "interrupted"},
		"key":                  {[]string{"fingerprint", pipe}, true, "interrupted"},
		"login file":           {[]string{"list", "--template", "127.0.0.1:1/${hostname}/${namespace}/${type}"}, false, "it is a pipe, and no regular file"},
		"lock file":            {[]string{"push", "--lock-file", pipe}, false, "no regular file"},
		"ignore file":          {[]string{"module", "push", module, "--as", "registry.acme.example/acme/vpc/aws@1.0.0", "--data", filepath.Join(dir, "data")}, false, "neither a file, a folder nor a link"},
		"certificate of serve": {[]string{"serve", "--tls-cert", pipe, "--tls-key", pipe, "--listen", "127.0.0.1:0", "--data", filepath.Join(dir, "data")}, false, "no regular file"},
	} {
		t.Run(what, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if tt.waits {
				cancel(interruption{syscall.SIGINT})
			}
			var stdout, stderr bytes.Buffer
			done := make(chan int, 1)
			go func() { done <- execute(ctx, tt.args, &stdout, &stderr) }()
			select {
			case status := <-done:
				if status == 0 || tt.waits != (status == 130) || !strings.Contains(stderr.String(), tt.stderr) {
					t.Errorf("status %d, %s", status, stderr.String())
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it hangs")
			}
		})
	}
}

// TestInterruptedPipe shows that the first SIGINT ends the wait for a named pipe that nobody writes.
func TestInterruptedPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "ocibridge", "fingerprint", pipe)
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A pipe can be opened for writing without blocking as soon as the program reads it. The program then waits for content.
	var writer *os.File
	for deadline := time.Now().Add(time.Minute); writer == nil && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		writer, _ = os.OpenFile(pipe, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	}
	if writer == nil {
		t.Fatal("the program does not open the pipe")
	}
	defer writer.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
		if status := cmd.ProcessState.ExitCode(); status != 130 || !strings.Contains(stderr.String(), "interrupted") {
			t.Errorf("status %d, %s", status, stderr.String())
		}
	case <-time.After(30 * time.Second): // half of the time after which the wait ends without an interrupt
		_ = cmd.Process.Kill()
		<-done
		t.Error("the interrupt does not end the wait")
	}
}
