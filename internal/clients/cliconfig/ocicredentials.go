package cliconfig

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/ast"
	"oras.land/oras-go/v2/registry"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/ociaddr"
)

// OCICredentials returns the oci_credentials blocks in the order of files and lines. It also returns the
// oci_default_credentials block, or nil if the configuration has no such block. All returned blocks are valid.
func (c *Config) OCICredentials() ([]login.Login, *login.Defaults) {
	if c.defaults == nil {
		return slices.Clone(c.credentials), nil
	}
	defaults := *c.defaults
	defaults.Files = slices.Clone(defaults.Files)
	return slices.Clone(c.credentials), &defaults
}

// addOCI adds the oci_credentials and oci_default_credentials blocks of a file. It returns an error if two blocks have
// the same prefix, or if there are two default blocks, even if the two are in different files. OpenTofu refuses such
// blocks, too.
func (c *Config) addOCI(f *file) error {
	for _, d := range f.defaults {
		if c.defaults != nil {
			return hint.New(fmt.Sprintf("CLI configuration: there is a second oci_default_credentials block at %s; the first is at %s", d.Origin, c.defaults.Origin),
				"remove one of them; OpenTofu does not accept both either")
		}
		c.defaults = d
	}
	c.credentials = append(c.credentials, f.credentials...)
	if err := login.Check(c.credentials); err != nil {
		return fmt.Errorf("CLI configuration: %w", err)
	}
	if c.defaults != nil {
		if err := c.defaults.Validate(); err != nil {
			return fmt.Errorf("CLI configuration: %w", err)
		}
	}
	return nil
}

// ociCredentials decodes the oci_credentials blocks of a file. If OpenTofu accepts a block that cannot be used,
// ociCredentials only adds a warning, because the block may be for a registry that is not needed.
func (f *file) ociCredentials(name string, root *ast.ObjectList) error {
	const help = `write: oci_credentials "HOST" or "HOST/PATH" { username = "...", password = "..." }, or with access_token, or with docker_credentials_helper`
	for _, item := range root.Filter("oci_credentials").Items {
		origin := origin(name, item)
		b, useless, err := ociCredential(item)
		switch {
		case err != nil:
			return hint.Wrap(fmt.Errorf("%s: %w", origin, err), help)
		case useless != "":
			f.warnings = append(f.warnings, fmt.Sprintf("the oci_credentials block %q at %s is passed over: %s", b.Prefix, origin, useless))
			continue
		}
		b.Origin = origin
		f.credentials = append(f.credentials, b)
	}
	return nil
}

// ociCredential decodes an oci_credentials block. The key of item is the label of the block. If OpenTofu accepts the
// block but it cannot be used, useless says why.
func ociCredential(item *ast.ObjectItem) (out login.Login, useless string, err error) {
	body, ok := item.Val.(*ast.ObjectType)
	if !ok || len(item.Keys) != 1 || introducedByEquals(item) {
		return out, "", errors.New("oci_credentials is a block with one label")
	}
	// The fields are pointers. A nil pointer means that the argument is absent, not empty.
	var b struct {
		Username     *string `hcl:"username"`
		Password     *string `hcl:"password"`
		AccessToken  *string `hcl:"access_token"`
		RefreshToken *string `hcl:"refresh_token"`
		Helper       *string `hcl:"docker_credentials_helper"`
	}
	prefix, _ := item.Keys[0].Token.Value().(string)
	if err := hcl.DecodeObject(&b, body); err != nil {
		return out, "", fmt.Errorf("invalid oci_credentials block %q%s", prefix, publicProblem(err))
	}
	for _, argument := range []struct {
		name  string
		value *string
	}{
		{"username", b.Username}, {"password", b.Password}, {"access_token", b.AccessToken},
		{"refresh_token", b.RefreshToken},
	} {
		if argument.value != nil && *argument.value == "" {
			useless = "it has an empty " + argument.name
		}
	}
	if b.Helper != nil && *b.Helper == "" {
		return out, "", fmt.Errorf("the oci_credentials block %q has an empty docker_credentials_helper", prefix)
	}
	host, _, _ := strings.Cut(prefix, "/")
	if _, err := ociaddr.ParseRegistry(host); err != nil && openTofuTakes(prefix) {
		useless = "no registry that ocibridge speaks to can have this name"
	}
	return login.Login{
		Prefix: prefix, Username: secret(b.Username), Password: secret(b.Password),
		AccessToken: secret(b.AccessToken), RefreshToken: secret(b.RefreshToken), Helper: value(b.Helper), InCLIConfig: true,
	}, useless, nil
}

// openTofuTakes reports whether OpenTofu accepts prefix as the label of an oci_credentials block.
func openTofuTakes(prefix string) bool {
	if !strings.Contains(prefix, "/") {
		return registry.Reference{Registry: prefix}.ValidateRegistry() == nil
	}
	ref, err := registry.ParseReference(prefix)
	return err == nil && ref.Reference == ""
}

func secret(s *string) login.Secret { return login.NewSecret(value(s)) }

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// ociDefaults returns the oci_default_credentials blocks of a file.
func ociDefaults(env Environment, name string, root *ast.ObjectList) ([]*login.Defaults, error) {
	const help = `write: oci_default_credentials { discover_ambient_credentials = true }, with docker_style_config_files and docker_credentials_helper where wanted`
	var out []*login.Defaults
	for _, item := range root.Filter("oci_default_credentials").Items {
		d, err := ociDefault(item)
		if err != nil {
			return nil, hint.Wrap(fmt.Errorf("%s: %w", origin(name, item), err), help)
		}
		d.Origin = origin(name, item)
		for i, file := range d.Files {
			d.Files[i] = files.Paths(env.GOOS).RelativeTo(name, file)
		}
		out = append(out, d)
	}
	return out, nil
}

func ociDefault(item *ast.ObjectItem) (*login.Defaults, error) {
	body, ok := item.Val.(*ast.ObjectType)
	if !ok || len(item.Keys) > 0 || introducedByEquals(item) {
		return nil, errors.New("oci_default_credentials is a block without a label")
	}
	var b struct {
		Discover *bool     `hcl:"discover_ambient_credentials"`
		Files    *[]string `hcl:"docker_style_config_files"`
		Helper   *string   `hcl:"docker_credentials_helper"`
	}
	if err := hcl.DecodeObject(&b, body); err != nil {
		return nil, fmt.Errorf("invalid oci_default_credentials block%s", publicProblem(err))
	}
	if b.Helper != nil && *b.Helper == "" {
		return nil, errors.New("the oci_default_credentials block has an empty docker_credentials_helper")
	}
	d := &login.Defaults{Discover: b.Discover == nil || *b.Discover, Helper: value(b.Helper), InCLIConfig: true}
	if b.Files != nil {
		d.Files = append([]string{}, *b.Files...)
	}
	return d, nil
}

// introducedByEquals reports whether a block in HCL syntax is written with an equals sign, like an argument. OpenTofu
// refuses such a block. For JSON, the result is always false.
func introducedByEquals(item *ast.ObjectItem) bool {
	body, ok := item.Val.(*ast.ObjectType)
	return item.Assign.IsValid() && ok && body.Lbrace.IsValid()
}

// origin returns the position of a block for messages: FILE:LINE in HCL syntax, or FILE in JSON.
func origin(name string, item *ast.ObjectItem) string {
	if pos := position(item); pos.IsValid() {
		return fmt.Sprintf("%s:%d", name, pos.Line)
	}
	return name
}
