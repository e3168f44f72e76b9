package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/ocibridge/ocibridge/auth"
	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/auth/wire"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

const loginExamples = `  # prompt for the user name and the password
  ocibridge login harbor.example.com

  # in a CI job; the single quotes keep the shell from replacing $ci
  echo "$HARBOR_SECRET" | ocibridge login harbor.example.com \
    --username 'robot$ci' --password-stdin

  # for the repositories of one project
  ocibridge login harbor.example.com/providers --username 'robot$providers+push'`

// loginFlags are the flags of login and logout.
type loginFlags struct {
	connectionFlags
	username      string
	passwordStdin bool
}

func newLoginCommand() *cobra.Command {
	f := &loginFlags{}
	cmd := &cobra.Command{
		Use:   "login REGISTRY[/PATH]",
		Short: "Check and store a login for a registry",
		Long: `login stores a user name and a password for a registry where docker, podman, oras and
helm find them, too: with the credential helper that the login file names (credsStore,
credHelpers), or in the file itself. The file is the one in REGISTRY_AUTH_FILE, or
config.json in DOCKER_CONFIG, or ~/.docker/config.json.

Before that, login checks the password with the registry. If the registry refuses it,
login stores nothing.

Without --password-stdin, login prompts for the password, which needs a terminal. There
is no flag for the password itself: other users of the machine could read it in the
list of processes, and the shell would keep it in its history.`,
		Example:           loginExamples,
		Args:              oneRegistry,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.login(cmd, args[0]) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	f.connectionFlags.register(cmd)
	cmd.Flags().StringVarP(&f.username, "username", "u", "", "user `name` (default: prompt)")
	cmd.Flags().BoolVar(&f.passwordStdin, "password-stdin", false, "read the password from standard input")
	cmd.RegisterFlagCompletionFunc("username", cobra.NoFileCompletions)
	return cmd
}

func newLogoutCommand() *cobra.Command {
	f := &loginFlags{}
	cmd := &cobra.Command{
		Use:   "logout REGISTRY[/PATH]",
		Short: "Remove a stored login for a registry",
		Long: `logout removes the login that login or docker login has stored for a registry, from the
credential helper or the login file. It fails if there is none.`,
		Example: `  ocibridge logout harbor.example.com`,
		Args:    oneRegistry,
		RunE:    func(cmd *cobra.Command, args []string) error { return f.logout(cmd, args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return authEnvironment().StoredFor(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	f.configFlag.register(cmd)
	return cmd
}

func oneRegistry(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage(hint.New(fmt.Sprintf("%s takes one registry, and got %d arguments", cmd.Name(), len(args)), "name it as in a template, such as: %s ghcr.io", cmd.CommandPath()))
	}
	return nil
}

// parseLoginScope parses HOST or HOST/PATH, the scope of a login.
func parseLoginScope(s string) (r ociaddr.Repository, err error) {
	if host, _, hasPath := strings.Cut(s, "/"); hasPath && !strings.Contains(s, "://") {
		r, err = ociaddr.ParseRepository(strings.ToLower(host) + s[len(host):])
	} else {
		r.Registry, err = ociaddr.ParseRegistry(strings.ToLower(s))
	}
	return r, usage(hint.Wrap(err, "name a registry, such as ghcr.io, or the beginning of its repositories' names, such as harbor.example.com/providers"))
}

// login checks and stores a login.
func (f *loginFlags) login(cmd *cobra.Command, name string) error {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	r, err := parseLoginScope(name)
	if err != nil {
		return err
	}
	s, err := f.settings(cmd)
	if err != nil {
		return err
	}
	options := s.authOptions()
	options.Wire.PlainHTTP = f.plainHTTP
	password, err := f.ask(ctx, cmd.InOrStdin(), stderr)
	if err != nil {
		return err
	}
	err = auth.CheckLogin(ctx, options, r.Registry, f.username, password)
	if errors.Is(err, wire.ErrNotAsked) {
		warn(stderr, "%s did not ask for a login: the password was not checked", r.Registry)
	} else if err != nil {
		return err
	}
	logins := login.New(options.Login)
	stored, err := logins.Store(ctx, r, f.username, password)
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The login of %s for %s is stored in %s.\n", f.username, name, stored)
	if stored.Helper == "" {
		warn(stderr, "%s holds the password without encryption; a credential helper, which credsStore names there, would encrypt it", stored.File)
		if runtime.GOOS != "windows" && stored.Mode&0o077 != 0 {
			warn(stderr, "other users of this machine may read %s: run chmod 600 on it", stored.File)
		}
	}
	if effective := logins.Effective(ctx, r); !stored.Is(effective) {
		if effective == "" {
			effective = "no login, because an oci_default_credentials block leaves this file out"
			if stored.Helper != "" {
				effective += ", or the helper does not return the login"
			}
		}
		warn(stderr, "ocibridge does not use this login, but %s", effective)
	}
	return nil
}

// logout removes a stored login.
func (f *loginFlags) logout(cmd *cobra.Command, name string) error {
	ctx := cmd.Context()
	r, err := parseLoginScope(name)
	if err != nil {
		return err
	}
	s, err := f.configFlag.settings(cmd)
	if err != nil {
		return err
	}
	logins := login.New(s.authOptions().Login)
	removed, err := logins.Remove(ctx, r)
	if err != nil && !errors.Is(err, login.ErrNotLoggedIn) {
		return err
	}
	effective := logins.Effective(ctx, r)
	if err != nil {
		help := "ocibridge finds no other login for it either"
		if effective != "" {
			help = "ocibridge uses " + effective
		}
		return hint.New(fmt.Sprintf("not logged in: there is no login for %s in %s", name, removed), "%s", help)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "The login for %s is removed from %s.\n", name, removed)
	if effective != "" {
		warn(cmd.ErrOrStderr(), "ocibridge now uses %s", effective)
	}
	return nil
}

// maxPassword is the maximum length in bytes of a password on standard input. The tokens of cloud registries have some 10 KiB.
const maxPassword = 64 << 10

// ask returns the password, and sets f.username if no flag gives it.
func (f *loginFlags) ask(ctx context.Context, stdin io.Reader, stderr io.Writer) (login.Secret, error) {
	if f.passwordStdin {
		return f.readPassword(ctx, stdin)
	}
	terminal, ok := stdin.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return login.Secret{}, usage(hint.New("no password given, and no terminal to prompt for it", `pass it by: echo "$PASSWORD" | ocibridge login ... --username NAME --password-stdin`))
	}
	if f.username == "" {
		fmt.Fprint(stderr, "Username: ")
		name, err := within(ctx, func() (string, error) { return bufio.NewReader(terminal).ReadString('\n') })
		if err != nil && !errors.Is(err, io.EOF) {
			return login.Secret{}, err
		}
		f.username = strings.TrimSpace(name)
	}
	if err := checkUsername(f.username); err != nil {
		return login.Secret{}, err
	}
	before, err := term.GetState(int(terminal.Fd()))
	if err != nil {
		return login.Secret{}, err
	}
	fmt.Fprint(stderr, "Password: ")
	password, err := within(ctx, func() (string, error) {
		b, err := term.ReadPassword(int(terminal.Fd()))
		return string(b), err
	})
	fmt.Fprintln(stderr)
	if err != nil && !errors.Is(err, io.EOF) {
		return login.Secret{}, errors.Join(err, term.Restore(int(terminal.Fd()), before)) // an interrupted ReadPassword leaves the echo off
	}
	return checkPassword(password)
}

// readPassword reads the password from standard input, without line breaks at its end. A password may have several lines,
// such as the key of a Google service account.
func (f *loginFlags) readPassword(ctx context.Context, stdin io.Reader) (login.Secret, error) {
	if err := checkUsername(f.username); err != nil {
		return login.Secret{}, err
	}
	text, err := within(ctx, func() (string, error) {
		b, err := io.ReadAll(io.LimitReader(stdin, maxPassword+1))
		return string(b), err
	})
	switch {
	case err != nil:
		return login.Secret{}, fmt.Errorf("read the password from standard input: %w", err)
	case len(text) > maxPassword:
		return login.Secret{}, hint.New(fmt.Sprintf("standard input has more than %d KiB", maxPassword>>10), "--password-stdin takes the password alone")
	}
	return checkPassword(strings.TrimRight(text, "\r\n"))
}

func checkUsername(name string) error {
	switch {
	case name == "":
		return usage(hint.New("no user name given", "give it as --username NAME; registries that need none take any name"))
	case strings.Contains(name, ":"):
		return usage(hint.New("the user name contains a colon", "a colon separates the user name from the password: no registry has such names"))
	}
	return nil
}

func checkPassword(text string) (login.Secret, error) {
	switch {
	case text == "":
		return login.Secret{}, hint.New("the password is empty", "is the variable or the file that it comes from empty? Some CI systems hide secrets from some jobs")
	case strings.Contains(text, "\x00"):
		return login.Secret{}, hint.New("the password has a NUL character", "--password-stdin takes the password alone: is it a file in UTF-16, or a binary file?")
	}
	return login.NewSecret(text), nil
}

// within calls read and returns its results, or the error of ctx if ctx ends first. In that case, read keeps running
// until the process exits.
func within(ctx context.Context, read func() (string, error)) (string, error) {
	var text string
	done := make(chan error, 1)
	go func() {
		value, err := read()
		text = value
		done <- err
	}()
	select {
	case err := <-done:
		return text, err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
