package auth

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// openTofuMiss says why OpenTofu does not find the login for a repository; "" means
// that it does. OpenTofu reads fewer sources, and parses their entries more strictly.
// The rules are those of its package internal/command/cliconfig/ociauthconfig.
func (l *login) openTofuMiss(r ociaddr.Repository) string {
	switch {
	case l.miss != "":
		return l.miss
	case l.kind == inFile && l.written != "" && !matchesAsWritten(l.written, r):
		return "OpenTofu compares registries letter by letter, and " + l.written + " is not " + string(r.Registry)
	}
	return ""
}

// matchesAsWritten reports whether a key of a login file matches the repository without
// normalisation of letter case, scheme and Docker Hub's names.
func matchesAsWritten(written string, r ociaddr.Repository) bool {
	host, path, _ := strings.Cut(written, "/")
	return host == string(r.Registry) && (path == "" || r.Name == path || strings.HasPrefix(r.Name, path+"/"))
}

// openTofuMiss says why OpenTofu does not read a login file; "" means that it does.
func (f loginFile) openTofuMiss(env Environment) string {
	switch {
	case f.text != "":
		return "OpenTofu does not read the variable " + f.name
	case f.required && !f.ours || slices.Contains(env.openTofuFiles(), f.name):
		return ""
	case f.named:
		return "OpenTofu does not know the variable REGISTRY_AUTH_FILE"
	}
	return "OpenTofu does not look at " + f.name
}

// blockMiss says why OpenTofu does not read a block; "" means that it does.
func blockMiss(inCLIConfig bool) string {
	if inCLIConfig {
		return ""
	}
	return "OpenTofu does not read ocibridge.hcl"
}

// openTofuParses reports whether OpenTofu can parse a login file. If one of the usual
// files does not parse, OpenTofu ignores them all.
func openTofuParses(src []byte) bool {
	var f struct {
		Auths map[string]*struct {
			Auth []byte `json:"auth"`
		} `json:"auths"`
		CredHelpers map[string]string `json:"credHelpers"`
		CredsStore  string            `json:"credsStore"`
	}
	return json.Unmarshal(src, &f) == nil
}

// openTofuFiles returns the locations where OpenTofu looks for login files. It ignores
// REGISTRY_AUTH_FILE and DOCKER_CONFIG, and does not use podman's location for systems
// without XDG_RUNTIME_DIR.
func (env Environment) openTofuFiles() []string {
	var out []string
	switch dir := env.getenv("XDG_RUNTIME_DIR"); {
	case env.GOOS == "linux" && dir != "":
		out = append(out, env.join(dir, "containers", "auth.json"))
	case env.GOOS == "windows" || env.GOOS == "darwin":
		out = append(out, env.join(env.Home, ".config", "containers", "auth.json"))
	}
	if dir := env.getenv("XDG_CONFIG_HOME"); dir != "" {
		out = append(out, env.join(dir, "containers", "auth.json"))
	} else {
		out = append(out, env.join(env.Home, ".config", "containers", "auth.json"))
	}
	return append(out, env.join(env.Home, ".docker", "config.json"), env.join(env.Home, ".dockercfg"))
}

// openTofuMiss says why OpenTofu takes no login from an entry; "" means that it does.
// OpenTofu reads only the field "auth".
func (w wireAuth) openTofuMiss() string {
	if w.Auth == "" {
		return `OpenTofu reads no entry without "auth"`
	}
	return ""
}
