package origin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// ReleaseDir is a folder with one release of a provider as GoReleaser writes it:
//
//	terraform-provider-TYPE_VERSION_OS_ARCH.zip ...
//	terraform-provider-TYPE_VERSION_SHA256SUMS
//	terraform-provider-TYPE_VERSION_SHA256SUMS.sig
//	terraform-provider-TYPE_VERSION_manifest.json (optional)
//
// The folder does not say whose provider it is; who opens it does.
type ReleaseDir struct {
	root *os.Root
}

// OpenReleaseDir opens a release folder. The caller closes it after the last
// package is read.
func OpenReleaseDir(dir string) (*ReleaseDir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("release folder: %w", err)
	}
	return &ReleaseDir{root}, nil
}

// Close releases the folder.
func (d *ReleaseDir) Close() error { return d.root.Close() }

// Release returns what is in the folder as version v of a, with the platforms
// given, or with all that its SHA256SUMS lists if none is given. publicKey is
// the ASCII-armoured key that signed it, "" for none.
func (d *ReleaseDir) Release(a provider.Address, v provider.Version, publicKey string, want []provider.Platform) (*Release, error) {
	r, err := d.release(a, v, publicKey, want)
	if err != nil {
		return nil, fmt.Errorf("release folder %s: %w", d.root.Name(), err)
	}
	return r, nil
}

func (d *ReleaseDir) release(a provider.Address, v provider.Version, publicKey string, want []provider.Platform) (*Release, error) {
	claims, err := d.claims(a, v, publicKey)
	if err != nil {
		return nil, err
	}
	have, err := d.platforms(a, v, claims.SHA256SUMS)
	if err != nil {
		return nil, err
	}
	platforms, partial, err := selectPlatforms(a, v, have, want)
	if err != nil {
		return nil, err
	}
	r := &Release{Origin: "release folder", Partial: partial, Claims: claims}
	if r.Protocols, err = d.protocols(a, v); err != nil {
		return nil, err
	}
	for _, p := range platforms {
		name := provider.PackageFilename(a, v, p)
		if _, err := d.root.Stat(name); err != nil {
			return nil, hint.Wrap(fmt.Errorf("SHA256SUMS lists %s, which is not there: %w", name, err), "push what is there with --platform")
		}
		r.Packages = append(r.Packages, Package{Platform: p, Filename: name, Open: func(context.Context) (io.ReadCloser, int64, error) {
			return openFile(d.root, name)
		}})
	}
	return r, nil
}

// claims reads SHA256SUMS, its signature and the registry manifest's checksum.
func (d *ReleaseDir) claims(a provider.Address, v provider.Version, publicKey string) (trust.Claims, error) {
	c := trust.Claims{Provider: a, Version: v}
	name := fmt.Sprintf("terraform-provider-%s_%s_SHA256SUMS", a.Type(), v)
	var err error
	if c.SHA256SUMS, err = d.read(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = hint.Wrap(err, "%s", d.whatIsThere(a))
		}
		return c, err
	}
	if publicKey == "" {
		return c, nil
	}
	if c.Signature, err = d.signature(name); err != nil {
		return c, err
	}
	keyID, err := trust.KeyID(publicKey)
	if err != nil {
		return c, err
	}
	c.Keys = []string{publicKey}
	type gpgKey struct {
		KeyID      string `json:"key_id"`
		ASCIIArmor string `json:"ascii_armor"`
	}
	c.SigningKeys, err = json.Marshal(map[string][]gpgKey{"gpg_public_keys": {{keyID, publicKey}}})
	return c, err
}

// signature reads the detached signature of a file, binary or armoured.
func (d *ReleaseDir) signature(name string) ([]byte, error) {
	for _, suffix := range []string{".sig", ".asc"} {
		data, err := d.read(name + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return trust.BinarySignature(data)
	}
	return nil, hint.Wrap(fmt.Errorf("there is no %s.sig: %w", name, trust.ErrUnsigned),
		"sign it with gpg --detach-sign, or leave out --public-key and accept it with --allow-unsigned")
}

// whatIsThere helps someone who named the wrong version or type.
func (d *ReleaseDir) whatIsThere(a provider.Address) string {
	found, err := fs.Glob(d.root.FS(), "*_SHA256SUMS")
	if err != nil || len(found) == 0 {
		return "a release folder holds the zips and the SHA256SUMS file that GoReleaser writes, often dist/"
	}
	return fmt.Sprintf("there is %s: is --as %s/%s/... the type and version of this release?", strings.Join(found[:min(len(found), maxListed)], ", "), a.Hostname(), a.Namespace())
}

func (d *ReleaseDir) read(name string) ([]byte, error) {
	f, _, err := openFile(d.root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := readAll(f, maxDocumentBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// platforms returns those that have a package in SHA256SUMS or in the folder: a
// zip that nobody lists is a release gone wrong, and trust says so.
func (d *ReleaseDir) platforms(a provider.Address, v provider.Version, sums []byte) ([]provider.Platform, error) {
	name := regexp.MustCompile(`terraform-provider-` + regexp.QuoteMeta(a.Type()+"_"+v.String()) + `_([a-z0-9]+_[a-z0-9]+)\.zip`)
	zips, err := fs.Glob(d.root.FS(), "*.zip")
	if err != nil {
		return nil, err
	}
	names := append(strings.Fields(string(sums)), zips...)
	var out []provider.Platform
	for _, n := range names {
		if m := name.FindStringSubmatch(n); m != nil && m[0] == n {
			p, err := provider.ParsePlatform(m[1])
			if err != nil {
				return nil, err
			}
			if !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("SHA256SUMS lists no %s", filepath.Base(provider.PackageFilename(a, v, provider.Platform{OS: "OS", Arch: "ARCH"})))
	}
	return out, nil
}

// protocols reads the registry manifest, under the name of a release or that of
// the source tree; nil if there is none.
func (d *ReleaseDir) protocols(a provider.Address, v provider.Version) ([]string, error) {
	for _, name := range []string{fmt.Sprintf("terraform-provider-%s_%s_manifest.json", a.Type(), v), "terraform-registry-manifest.json"} {
		data, err := d.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var manifest struct {
			Metadata struct {
				ProtocolVersions []string `json:"protocol_versions"`
			} `json:"metadata"`
		}
		if err := json.Unmarshal(data, &manifest); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return manifest.Metadata.ProtocolVersions, nil
	}
	return nil, nil
}
