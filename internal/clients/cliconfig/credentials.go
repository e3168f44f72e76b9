package cliconfig

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	version "github.com/hashicorp/go-version"
	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/fresh"
	"github.com/ocibridge/ocibridge/internal/base/helper"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// apiToken is an API token in the Authorization header of a request.
type apiToken struct{ login.Secret }

var _ svcauth.HostCredentials = apiToken{}

func (t apiToken) PrepareRequest(req *http.Request) {
	if req.Header == nil {
		req.Header = http.Header{}
	}
	req.Header.Set("Authorization", "Bearer "+t.Reveal())
}

// filedToken is the API token of a host from one source.
type filedToken struct {
	token  login.Secret // empty if the source has a block without a token for the host
	source string       // the file, or the name of the variable
}

// TokenHost is a host that has an API token, and the file or the name of the variable that has the token.
type TokenHost struct {
	Host   svchost.Hostname
	Source string
}

// TokenHosts returns the sorted hosts that have a token in a TF_TOKEN_ variable or in a credentials block. It does not
// run the credentials helper, so hosts whose tokens only the helper knows are missing.
func (c *Config) TokenHosts() []TokenHost {
	filed := maps.Clone(c.tokens)
	maps.Copy(filed, c.env)
	var out []TokenHost
	for _, host := range slices.Sorted(maps.Keys(filed)) {
		if f := filed[host]; !f.token.IsZero() {
			out = append(out, TokenHost{host, f.source})
		}
	}
	return out
}

// CredentialsSource returns a source of API tokens for hosts. For each host, the source looks for a TF_TOKEN_ variable
// first, then for a credentials block, and then runs the credentials helper. A credentials block without a token means
// that the host has no token. The source returns an error only if the helper fails. It is safe for concurrent use. Its
// results put a token only into the request that they prepare.
func (c *Config) CredentialsSource() svcauth.CredentialsSource { return source{c} }

type source struct{ config *Config }

func (s source) ForHost(ctx context.Context, host svchost.Hostname) (svcauth.HostCredentials, error) {
	filed, ok := s.config.env[host]
	if !ok {
		filed, ok = s.config.tokens[host]
	}
	t := filed.token
	if !ok && s.config.helper != nil {
		var err error
		if t, err = s.config.helper.get(ctx, host); err != nil {
			return nil, err
		}
	}
	if t.IsZero() {
		return nil, nil
	}
	return apiToken{t}, nil
}

const tokenPrefix = "TF_TOKEN_"

// tokensFromEnviron returns the tokens in the TF_TOKEN_ variables. Like the clients, it ignores variables with an
// invalid host name or an empty value.
func tokensFromEnviron(environ []string) map[svchost.Hostname]filedToken {
	out := map[svchost.Hostname]filedToken{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		encoded, ok := strings.CutPrefix(name, tokenPrefix)
		if !ok || value == "" {
			continue
		}
		if host, err := hostFromVariable(encoded); err == nil {
			out[host] = filedToken{login.NewSecret(value), name}
		}
	}
	return out
}

// hostFromVariable decodes the host in the name of a TF_TOKEN_ variable. Two underscores mean a dash, and one
// underscore means a dot, because shells allow neither dashes nor dots in the names of variables. Host names contain no
// underscores. hostFromVariable converts Punycode to Unicode, because svchost.ForComparison refuses Punycode.
func hostFromVariable(encoded string) (svchost.Hostname, error) {
	s := strings.ReplaceAll(encoded, "__", "-")
	s = strings.ReplaceAll(s, "_", ".")
	return svchost.ForComparison(svchost.ForDisplay(s))
}

const (
	helperPrefix = "terraform-credentials-" // begins the file name of every credentials helper
	helperLimit  = 30 * time.Second         // the maximum duration of one run
	helperKeep   = time.Minute              // how long the answer of the helper for a host is cached
)

// credentialsHelper is the program that a credentials_helper block names. Its arguments are the arguments in the block,
// "get" and a host name. It prints a JSON object with the arguments of a credentials block. The clients run the program
// in the same way. The commands "store" and "forget" are never used.
type credentialsHelper struct {
	path  string
	args  hidden
	limit time.Duration
	grace time.Duration // the maximum wait for output after the program has exited or was killed

	answers *fresh.Cache[svchost.Hostname, login.Secret]
}

// findHelper sets c.helper to the program that the credentials_helper block names. If the program is missing,
// findHelper only adds a warning, because the clients also continue without it.
func (c *Config) findHelper(env Environment) error {
	names := slices.Sorted(maps.Keys(c.helpers))
	if len(names) == 0 {
		return nil
	}
	if len(names) > 1 {
		return hint.New(fmt.Sprintf("CLI configuration: there is more than one credentials_helper block: %s", strings.Join(names, ", ")),
			"remove all but one; OpenTofu and Terraform do not accept them either")
	}
	path := env.findPlugin(names[0])
	if path == "" {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the credentials helper %s is not used: there is no %s%s in the plugin folders: %s",
			names[0], helperPrefix, names[0], strings.Join(env.pluginFolders(), ", ")))
		return nil
	}
	c.helper = &credentialsHelper{path: path, args: c.helpers[names[0]], limit: helperLimit, grace: time.Second}
	c.helper.answers = fresh.New(fresh.Options[svchost.Hostname, login.Secret]{
		Key: svchost.Hostname.String,
		Fetch: func(ctx context.Context, host svchost.Hostname, _ *fresh.Answer[login.Secret]) (fresh.Answer[login.Secret], error) {
			token, err := c.helper.run(ctx, host)
			return fresh.Answer[login.Secret]{Value: token, TTL: helperKeep}, err
		},
		Timeout: 2 * helperLimit, // each run has its own limit
	})
	return nil
}

// hidden returns a list of arguments that may contain a secret. hidden is a function so that a formatted struct does
// not show the arguments.
type hidden func() []string

// pluginFolders returns the folders in which clients look for credentials helpers, in order.
func (env Environment) pluginFolders() []string {
	var data []string
	if env.GOOS == "windows" {
		if dir := env.folder(OpenTofu); dir != "" {
			data = append(data, dir)
		}
	} else {
		if env.Home != "" {
			data = append(data, env.join(env.Home, ".terraform.d"))
		}
		if xdg := env.Getenv("XDG_DATA_HOME"); xdg != "" {
			data = append(data, env.join(xdg, "opentofu"))
		}
	}
	machine := env.GOOS + "_" + cmp.Or(env.GOARCH, runtime.GOARCH)
	var out []string
	for _, dir := range data {
		out = append(out, env.join(dir, "plugins"), env.join(dir, "plugins", machine))
	}
	return out
}

// findPlugin returns the path of the credentials helper with the given name, or "" if the helper is not installed. It
// returns the newest version. If several folders contain this version, it returns the program in the first folder. The
// file name of a program is terraform-credentials-NAME_vVERSION or terraform-credentials-NAME. A file name without a
// version counts as version 0.0.0.
func (env Environment) findPlugin(name string) string {
	var found string
	var newest *version.Version
	for _, dir := range env.pluginFolders() {
		entries, err := env.ReadDir(dir)
		if err != nil {
			continue // clients ignore missing and unreadable folders
		}
		for _, e := range entries {
			v, ok := pluginVersion(e.Name(), name)
			if !ok || e.IsDir() || newest != nil && !v.GreaterThan(newest) {
				continue
			}
			found, newest = env.join(dir, e.Name()), v
		}
	}
	return found
}

// pluginVersion returns the version in the file name of a credentials helper. It returns false if the file does not
// belong to the helper with the given name, or if the version is invalid.
func pluginVersion(file, name string) (*version.Version, bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(strings.ToLower(file), ".exe"), helperPrefix)
	if !ok {
		return nil, false
	}
	given, v, versioned := strings.Cut(rest, "_v")
	if given != name {
		return nil, false
	}
	if !versioned {
		v = "0.0.0"
	}
	v, _, _ = strings.Cut(v, "_x") // _x and the version of the plugin protocol may follow the version
	parsed, err := version.NewVersion(v)
	return parsed, err == nil
}

// get returns the token for a host, or an empty token if the helper has no token for it. Concurrent callers share one
// run of the helper.
func (h *credentialsHelper) get(ctx context.Context, host svchost.Hostname) (login.Secret, error) {
	answer, err := h.answers.Get(ctx, host)
	switch {
	case ctx.Err() != nil:
		return login.Secret{}, ctx.Err()
	case err != nil:
		return login.Secret{}, fmt.Errorf("credentials helper %s: %w", h.path, err)
	}
	return answer.Value, nil
}

// run runs the helper once, and returns the token that the helper prints for the host.
func (h *credentialsHelper) run(ctx context.Context, host svchost.Hostname) (login.Secret, error) {
	var answer map[string]any
	_, err := helper.Command{
		Path: h.path, Args: slices.Concat(h.args(), []string{"get", string(host)}), Limit: h.limit, Grace: h.grace,
		ByHand: fmt.Sprintf("run it by hand, with the arguments of the credentials_helper block and: get %s", host),
	}.Get(ctx, &answer)
	token, _ := answer["token"].(string) // other members of the object are reserved for other kinds of credentials
	return login.NewSecret(token), err
}
