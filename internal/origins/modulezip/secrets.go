package modulezip

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// secret is a kind of file that can contain secrets, and that hardly any module needs. Its patterns
// are those of [path.Match], in lower case. A pattern that ends with a slash matches a folder.
type secret struct {
	what     string
	patterns []string
	except   []string
}

var secrets = []secret{
	{"a state can contain secrets", []string{"*.tfstate", "*.tfstate.backup", "*.tfstate.*.backup", "*.tfstate.lock.info", "terraform.tfstate.d/"}, nil},
	{"a plan can contain secrets", []string{"*.tfplan", "tfplan", "tfplan.*", "plan.out", "*.plan"}, nil},
	{"a log can contain secrets", []string{"*.log"}, nil},
	{"the values of variables can be secrets", []string{"*.tfvars", "*.tfvars.json"}, nil},
	{"the values of variables can be secrets", []string{".env", ".env.*", ".envrc"}, []string{".env.example", ".env.sample", ".env.template", ".env.dist"}},
	{"credentials", []string{
		".terraformrc", "terraform.rc", ".tofurc", "tofu.rc", "*.tfrc", "*.tfrc.json", ".netrc", "_netrc", ".npmrc", ".pypirc", ".vault-token", "kubeconfig",
		".git-credentials", "application_default_credentials.json", ".aws/", ".azure/", ".docker/", ".kube/", ".terraform.d/",
	}, nil},
	{"a private key", []string{"*.pem", "*.key", "*.ppk", "*.p8", "*.p12", "*.pfx", "*.jks", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "id_ecdsa_sk", "id_ed25519_sk", ".ssh/"}, nil},
	{"copies of modules and of states", []string{".terragrunt-cache/"}, nil},
	{"on Windows and macOS, Git's own folder", []string{".git/"}, nil},
	{"on Windows and macOS, the working folder of clients", []string{".terraform/"}, nil},
}

// matches reports whether a file is of this kind.
func (s secret) matches(name string) bool {
	parts := strings.Split(strings.ToLower(name), "/")
	base := parts[len(parts)-1]
	if slices.Contains(s.except, base) {
		return false
	}
	return slices.ContainsFunc(s.patterns, func(pattern string) bool {
		if dir, ok := strings.CutSuffix(pattern, "/"); ok {
			return slices.Contains(parts[:len(parts)-1], dir)
		}
		found, err := path.Match(pattern, base)
		return found && err == nil
	})
}

// secretWarnings returns one warning for each kind of file that can contain secrets.
func secretWarnings(entries []entry) (out []string) {
	for _, s := range secrets {
		var found []string
		for _, e := range entries {
			if s.matches(e.name) {
				found = append(found, e.name)
			}
		}
		switch {
		case len(found) == 1:
			out = append(out, fmt.Sprintf("%s is part of the module: %s; .terraformignore can exclude it", found[0], s.what))
		case len(found) > 1:
			out = append(out, fmt.Sprintf("%s and %d more like it are part of the module: %s; .terraformignore can exclude them", found[0], len(found)-1, s.what))
		}
	}
	return out
}
