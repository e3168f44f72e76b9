package login

import (
	"encoding/json"
	"strings"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// openTofuMiss says why OpenTofu does not find the login for the repository. "" means
// that OpenTofu finds it. OpenTofu reads fewer sources, and parses their entries more
// strictly. The rules are in OpenTofu's package
// internal/command/cliconfig/ociauthconfig.
func (l *source) openTofuMiss(r ociaddr.Repository) string {
	switch {
	case l.miss != "":
		return l.miss
	case l.kind == inFile && l.written != "" && !matchesAsWritten(l.written, r):
		return "OpenTofu compares registries letter by letter, and " + l.written + " is not " + string(r.Registry)
	}
	return ""
}

// matchesAsWritten reports whether a key of a login file matches the repository as it
// is written. It does not ignore letter case or the scheme, and does not treat the
// names of Docker Hub as equal.
func matchesAsWritten(written string, r ociaddr.Repository) bool {
	host, path, _ := strings.Cut(written, "/")
	return host == string(r.Registry) && (path == "" || r.Name == path || strings.HasPrefix(r.Name, path+"/"))
}

// openTofuMiss says why OpenTofu does not read the login file. "" means that OpenTofu
// reads it.
func (f loginFile) openTofuMiss() string {
	switch {
	case f.openTofu:
		return ""
	case f.text != "":
		return "OpenTofu does not read the variable " + f.name
	case f.named:
		return "OpenTofu does not know the variable REGISTRY_AUTH_FILE"
	}
	return "OpenTofu does not look at " + f.name
}

// blockMiss says why OpenTofu does not read a block. "" means that OpenTofu reads it.
func blockMiss(inCLIConfig bool) string {
	if inCLIConfig {
		return ""
	}
	return "OpenTofu does not read ocibridge.hcl"
}

// openTofuParses reports whether OpenTofu can parse a login file. If OpenTofu cannot
// parse one of the usual login files, it ignores all of them.
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
