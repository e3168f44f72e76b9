package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/base/subject"
	"github.com/ocibridge/ocibridge/internal/clients/lockfile"
	"github.com/ocibridge/ocibridge/provider"
)

// gatewayOf is a gateway with pull-through for all providers of one host, which denies version 9.0.0.
type gatewayOf struct {
	host   string
	stored []provider.Version
}

func (g gatewayOf) Pulls(a subject.Address) bool { return a.Hostname() == g.host }

func (g gatewayOf) Stored(context.Context, provider.Address) []provider.Version { return g.stored }

func (gatewayOf) Denied(_ provider.Address, v provider.Version) error {
	if v.String() == "9.0.0" {
		return errors.New("denied")
	}
	return nil
}

// TestMissing shows what counts as missing after a command has failed.
func TestMissing(t *testing.T) {
	const a = "registry.terraform.io/acme/widget"
	required := func(source, version string) string {
		return fmt.Sprintf("terraform {\n required_providers {\n widget = {\n source = %q\n version = %q\n }\n }\n}\n", source, version)
	}
	locked := func(version string) string { return fmt.Sprintf("provider %q {\n version = %q\n}\n", a, version) }
	for name, tc := range map[string]struct {
		main, lock string
		versions   string // 9.0.0 is denied, and those of 8 are not signed. The others are listed
		upgrade    bool
		want       string
	}{
		"no provider":                {required("acme/widget", "1.0.0"), "", "", false, "[any]"},
		"nothing required":           {"", "", "1.0.0", false, "[]"},
		"the required version":       {required("acme/widget", "~> 1.0"), "", "1.0.0 1.1.0", false, "[]"},
		"another version":            {required("acme/widget", "~> 2.0"), "", "1.0.0 1.1.0", false, "[~> 2.0]"},
		"with a host":                {required(a, ">= 2.0, < 3.0"), "", "1.0.0", false, "[>= 2.0, < 3.0]"},
		"of another host":            {required("registry.acme.example/acme/widget", "~> 2.0"), "", "1.0.0", false, "[]"},
		"only a prerelease":          {required("acme/widget", "~> 2.0"), "", "2.0.0-beta1", false, "[~> 2.0]"},
		"an invalid constraint":      {required("acme/widget", "two"), "", "1.0.0", false, "[]"},
		"in old words":               {"terraform {\n required_providers {\n widget = \"~> 2.0\"\n }\n}\n", "", "1.0.0", false, "[]"}, // for hashicorp/widget
		"the locked version":         {required("acme/widget", "~> 1.0"), locked("1.0.0"), "1.0.0", false, "[]"},
		"not the locked version":     {required("acme/widget", "~> 1.0"), locked("1.1.0"), "1.0.0", false, "[1.1.0]"},
		"upgraded":                   {required("acme/widget", "~> 1.0"), locked("1.1.0"), "1.0.0", true, "[]"},
		"upgraded, another version":  {required("acme/widget", "~> 1.1"), locked("1.1.0"), "1.0.0", true, "[~> 1.1]"},
		"a denied version":           {required("acme/widget", "9.0.0"), "", "1.0.0", false, "[9.0.0 denied]"},
		"a denied version is locked": {"", locked("9.0.0"), "1.0.0", false, "[9.0.0 denied]"},
		"a denied version matches":   {required("acme/widget", ">= 2.0"), "", "1.0.0 9.0.0", false, "[9.0.0 denied]"},
		"so does another":            {required("acme/widget", ">= 1.0"), "", "1.0.0 9.0.0", false, "[]"},
		"a denied version does not":  {required("acme/widget", "~> 2.0"), "", "9.0.0", false, "[~> 2.0]"},
		"all are denied":             {"", "", "9.0.0", false, "[9.0.0 denied]"},
		"all are denied, one locked": {"", locked("9.0.0"), "9.0.0", false, "[9.0.0 denied]"},
		"none is signed":             {required("acme/widget", "8.0.0"), "", "8.0.0", false, "[any unsigned 8.0.0]"},
		"the newest unsigned match":  {required("acme/widget", "~> 8.0"), "", "1.0.0 8.0.0 8.1.0", false, "[~> 8.0 unsigned 8.1.0]"},
		"no unsigned match":          {required("acme/widget", "~> 7.0"), "", "1.0.0 8.0.0", false, "[~> 7.0]"},
		"an unsigned one is locked":  {required("acme/widget", "> 7.0"), locked("8.0.0"), "1.0.0 8.0.0 8.1.0", false, "[8.0.0 unsigned 8.0.0]"},
		"a signed one matches, too":  {required("acme/widget", "> 0.1"), "", "1.0.0 8.0.0", false, "[]"},
		"locked, and no provider":    {"", locked("1.1.0"), "", false, "[1.1.0]"},
	} {
		dir := workspace(t, map[string]string{"main.tf": tc.main, lockfile.Name: tc.lock})
		var stored, versions, denied []provider.Version
		for text := range strings.FieldsSeq(tc.versions) {
			v := provider.MustParseVersion(text)
			stored = append(stored, v)
			switch {
			case gatewayOf{}.Denied(provider.Address{}, v) != nil:
				denied = append(denied, v)
			case !strings.HasPrefix(text, "8."):
				versions = append(versions, v)
			}
		}
		r := &requests{}
		r.listed(provider.MustParseAddress(a), nil, nil) // a client that retries
		r.listed(provider.MustParseAddress(a), versions, denied)
		var got []string
		for _, m := range r.missing(t.Context(), readNeeds(dir), tc.upgrade, gatewayOf{stored: stored}) {
			got = append(got, describe(m))
		}
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
}

// describe returns what is missing, in a few words.
func describe(m Missing) string {
	out := "any"
	switch {
	case m.Platform != provider.Platform{}:
		out = fmt.Sprint(m.Version, " for ", m.Platform)
	case !m.Version.IsZero():
		out = m.Version.String()
	case !m.Versions.IsZero():
		out = m.Versions.String()
	}
	if m.Denied == nil && !m.Unsigned.IsZero() {
		out += " unsigned " + m.Unsigned.String()
	}
	if m.Denied != nil {
		out += " denied"
	}
	if m.Pulled {
		out += " pulled"
	}
	return out
}

// TestMissingPackages shows that a missing package is reported once, and whether pull-through is for it.
func TestMissingPackages(t *testing.T) {
	r := &requests{}
	v, p := provider.MustParseVersion("1.0.0"), provider.MustParsePlatform("linux_arm64")
	for range 2 * maxRequests {
		r.lacks(provider.MustParseAddress("registry.acme.example/acme/widget"), v, p)
	}
	r.lacks(provider.MustParseAddress("registry.other.example/acme/widget"), v, p)
	var got []string
	for _, m := range r.missing(t.Context(), needs{}, false, gatewayOf{host: "registry.other.example"}) {
		got = append(got, m.Provider.Hostname()+" "+describe(m))
	}
	if want := "[registry.acme.example 1.0.0 for linux_arm64 registry.other.example 1.0.0 for linux_arm64 pulled]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}

// TestUpgrades shows which arguments make a client ignore the versions in the lock file.
func TestUpgrades(t *testing.T) {
	for args, want := range map[string]bool{
		"init": false, "init -upgrade": true, "-chdir=sub init --upgrade": true, "init -upgrade=true": true, "init -upgrade=false": false,
	} {
		if got := upgrades(strings.Fields(args)); got != want {
			t.Errorf("%s: %t", args, got)
		}
	}
}
