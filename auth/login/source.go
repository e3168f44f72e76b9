package login

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ocibridge/ocibridge/ociaddr"
)

// source is where one credential comes from: an entry of a login file, a block of a
// configuration, environment variables, or a helper. A login file or a block names the
// helper.
type source struct {
	key    key
	name   string // a description, for [source.String]
	kind   sourceKind
	helper string // the name after docker-credential-; "" if cred is the credential
	cred   credential
	err    error // what is wrong with the source; reported only if the source is chosen

	absent  string // why the source has no login; "" if it has one
	except  []key  // registries for which the login is not used, although key matches them
	written string // the key as written in the login file; "" for credsStore
	miss    string // why OpenTofu never finds this login; "" if it might find it
}

// specificity returns the specificity of the login's key for the repository. It returns
// noMatch if the login excludes the repository's registry.
func (l *source) specificity(r ociaddr.Repository) int {
	if slices.ContainsFunc(l.except, func(k key) bool { return k.specificity(r) != noMatch }) {
		return noMatch
	}
	return l.key.specificity(r)
}

// sourceKind is the kind of source that a login comes from. The hint for a refused login
// depends on it.
type sourceKind int

const (
	inFile sourceKind = iota
	inBlock
	inVariables
)

// helperLogin returns the login that a helper provides. setting describes the setting
// that names the helper.
func helperLogin(k key, helper, setting string, kind sourceKind) *source {
	return &source{
		key: k, kind: kind, helper: helper,
		name: fmt.Sprintf("the helper %s%s (%s)", helperPrefix, helper, setting),
	}
}

// String describes where the credential comes from.
func (l *source) String() string { return l.name }

// get returns the login's credential for the registry. It returns the zero credential if
// a helper has no credential.
func (l *source) get(ctx context.Context, helpers *helperRunner, registry ociaddr.Registry) (credential, error) {
	if l.helper != "" && l.err == nil {
		return helpers.get(ctx, l.helper, registry)
	}
	return l.cred, l.err
}

// rank returns the logins that match the repository, most specific first. Equally
// specific logins keep their order. Sources without a login are omitted.
func rank(all []*source, r ociaddr.Repository) []*source {
	var out []*source
	for _, l := range all {
		if l.absent == "" && l.specificity(r) != noMatch {
			out = append(out, l)
		}
	}
	slices.SortStableFunc(out, func(a, b *source) int {
		return cmp.Compare(b.specificity(r), a.specificity(r))
	})
	return out
}
