package cliconfig

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/hcl/ast"

	"github.com/ocibridge/ocibridge/provider"
)

// InstallsFromHost reports whether the client installs a provider only from the provider's own host, and keeps no copies of
// its own: there is no plugin cache and no development override, no provider_installation block names another method for
// the provider, and no folder that the client searches by itself has the provider.
func (m *Merged) InstallsFromHost(env Environment, a provider.Address) bool {
	if env.Getenv("TF_PLUGIN_CACHE_DIR") != "" {
		return false
	}
	explicit := false
	for _, s := range m.settings {
		switch {
		case strings.EqualFold(s.kind, "plugin_cache_dir") && !isUnset(s.item.Val):
			return false
		case s.kind == "provider_installation":
			explicit = true
			if direct, mirror := sourcesOf(m.methods(s), a); !direct || mirror != nil || hasOverrides(s.item) {
				return false
			}
		}
	}
	return explicit || !env.hasPlugin(a)
}

// hasOverrides reports whether a provider_installation block has development overrides.
func hasOverrides(block *ast.ObjectItem) bool {
	body, ok := block.Val.(*ast.ObjectType)
	return ok && slices.ContainsFunc(body.List.Items, func(item *ast.ObjectItem) bool { return keyText(item.Keys[0]) == "dev_overrides" })
}

// hasPlugin reports whether a folder that clients search without a provider_installation block has a provider. It looks
// into the folders of both clients.
func (env Environment) hasPlugin(a provider.Address) bool {
	data := filepath.SplitList(cmp.Or(env.Getenv("XDG_DATA_DIRS"), "/usr/local/share"+string(filepath.ListSeparator)+"/usr/share"))
	folders := []string{env.join(env.Dir, "terraform.d"), env.folder(OpenTofu), env.folder(Terraform)}
	if env.Home != "" {
		data = append(data, cmp.Or(env.Getenv("XDG_DATA_HOME"), env.join(env.Home, ".local", "share")), env.join(env.Home, "Library", "Application Support"))
		folders = append(folders, env.join(env.Home, ".terraform.d"))
	}
	data = append(data, "/Library/Application Support", env.join(env.appData(), "HashiCorp"), env.appData())
	for _, dir := range data {
		for _, app := range []string{"terraform", "opentofu", "Terraform", "OpenTofu", "io.terraform", "org.opentofu"} {
			folders = append(folders, env.join(dir, app))
		}
	}
	return slices.ContainsFunc(folders, func(dir string) bool {
		entries, err := env.ReadDir(env.join(dir, "plugins", a.Hostname(), a.Namespace(), a.Type()))
		return dir != "" && err == nil && len(entries) > 0
	})
}
