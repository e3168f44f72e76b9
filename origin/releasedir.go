package origin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ocibridge/ocibridge/internal/base/document"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// ReleaseDir is a folder with one release of a provider, as GoReleaser writes it:
//
//	terraform-provider-TYPE_VERSION_OS_ARCH.zip ...
//	terraform-provider-TYPE_VERSION_SHA256SUMS
//	terraform-provider-TYPE_VERSION_SHA256SUMS.sig
//	terraform-provider-TYPE_VERSION_manifest.json (optional)
//
// Some publishers spell the version differently, such as v1.2.0. ReleaseDir accepts each file under any name that
// spells the same version.
//
// The folder does not contain the provider's address; the caller provides it.
type ReleaseDir struct {
	root *os.Root
}

// OpenReleaseDir opens a release folder. The caller must close it after the last package is read.
func OpenReleaseDir(dir string) (*ReleaseDir, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("release folder: %w", err), helpReleaseDir)
	}
	return &ReleaseDir{root}, nil
}

const (
	helpReleaseDir = "a release folder holds the zips and the SHA256SUMS file that GoReleaser writes, often dist/"
	helpMismatch   = "the zip was built again or changed after SHA256SUMS was written: restore it, or write SHA256SUMS and its signature anew; nothing was stored"
)

// Close releases the folder.
func (d *ReleaseDir) Close() error { return d.root.Close() }

// Release returns the content of the folder as the given version of the provider, with the
// given platforms. If no platform is given, the release has all platforms with a package
// in SHA256SUMS or in the folder. publicKey contains ASCII-armoured keys, and one of them
// must have signed the release. "" means that the release is not signed.
func (d *ReleaseDir) Release(ctx context.Context, a provider.Address, v provider.Version, publicKey string, want []provider.Platform) (*Release, error) {
	r, err := d.release(ctx, a, v, publicKey, want)
	if err != nil {
		return nil, hint.Wrap(fmt.Errorf("release folder %s: %w", d.root.Name(), err), helpReleaseDir)
	}
	return r, nil
}

func (d *ReleaseDir) release(ctx context.Context, a provider.Address, v provider.Version, publicKey string, want []provider.Platform) (*Release, error) {
	claims, err := d.claims(ctx, a, v, publicKey)
	if err != nil {
		return nil, err
	}
	names, err := d.packageNames(a, v, claims.SHA256SUMS)
	if err != nil {
		return nil, err
	}
	// The release is always partial, because the folders of other build jobs might have
	// other platforms of this version.
	platforms, _, err := selectPlatforms(a, v, slices.Collect(maps.Keys(names)), want)
	if err != nil {
		return nil, err
	}
	r := &Release{Origin: "release folder", Partial: true, ByPublisher: true, Claims: claims}
	if err := d.protocols(r); err != nil {
		return nil, err
	}
	for _, p := range platforms {
		name := names[p]
		if _, err := fileSize(d.root, name); err != nil {
			return nil, hint.Wrap(fmt.Errorf("SHA256SUMS lists a package that is not there: %w", err), "push only the platforms in the folder with --platform")
		}
		if err := d.checkProgram(ctx, a, p, name); err != nil {
			return nil, err
		}
		r.Packages = append(r.Packages, Package{Platform: p, Filename: name, Local: true, MismatchHint: helpMismatch, Open: func(context.Context) (io.ReadCloser, int64, error) {
			return openFile(d.root, name)
		}})
	}
	return r, nil
}

// checkProgram refuses a zip that no client could run, because its publisher can still fix it. If the file is not a
// zip, package trust reports the error.
func (d *ReleaseDir) checkProgram(ctx context.Context, a provider.Address, p provider.Platform, name string) error {
	f, size, err := files.OpenRegular(d.root, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := provider.CheckProgram(ctx, f, size, a.Type(), p); errors.Is(err, provider.ErrNoProgram) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// claims reads SHA256SUMS and its signature.
func (d *ReleaseDir) claims(ctx context.Context, a provider.Address, v provider.Version, publicKey string) (trust.Claims, error) {
	c := trust.Claims{Provider: a, Version: v}
	name, err := d.find(a, v, "SHA256SUMS")
	if err != nil {
		return c, err
	}
	if c.SHA256SUMS, err = d.read(name); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = hint.Wrap(err, "%s", d.whatIsThere())
		}
		return c, err
	}
	if publicKey == "" {
		return c, nil
	}
	if c.Signature, err = d.signature(name); err != nil {
		return c, err
	}
	c.Keys = splitKeys(publicKey)
	type gpgKey struct {
		KeyID      string `json:"key_id"`
		ASCIIArmor string `json:"ascii_armor"`
	}
	var keys []gpgKey
	ids, err := trust.KeyIDs(ctx, c.Keys)
	if err != nil {
		return c, fmt.Errorf("public key: %w", err)
	}
	for i, k := range c.Keys {
		if err := trust.CheckArmour(k); err != nil {
			return c, hint.Wrap(fmt.Errorf("public key: %w", err), "registries would hand out the key like this: give the file as gpg --armor --export KEYID writes it")
		}
		keys = append(keys, gpgKey{ids[i], k})
	}
	c.SigningKeys, err = json.Marshal(map[string][]gpgKey{"gpg_public_keys": keys})
	return c, err
}

// find returns the name of a release's file that ends with the given text. It is the published name if the folder has
// it, or else the only other spelling of this name in the folder. If the folder has neither, find returns the
// published name. Several other spellings are an error.
func (d *ReleaseDir) find(a provider.Address, v provider.Version, end string) (string, error) {
	published := fmt.Sprintf("terraform-provider-%s_%s_%s", a.Type(), v, end)
	if _, err := d.root.Stat(published); err == nil {
		return published, nil
	}
	found, err := fs.Glob(d.root.FS(), "*"+end)
	if err != nil {
		return "", err
	}
	found = slices.DeleteFunc(found, func(name string) bool { return !provider.SpellsFile(name, a, v, end) })
	switch len(found) {
	case 0:
		return published, nil
	case 1:
		return found[0], nil
	}
	return "", hint.New(fmt.Sprintf("there are %s", strings.Join(found[:min(len(found), maxListed)], " and ")), "all are names of %s: remove the wrong ones", published)
}

// splitKeys splits the content of a file with public keys into its armoured blocks, each a key
// ring, as in a registry's document. It ignores text around the blocks.
func splitKeys(armoured string) (out []string) {
	const begin = "-----BEGIN PGP "
	blocks := strings.Split(armoured, begin)
	if len(blocks) == 1 {
		return blocks // not armoured; package trust reports it
	}
	for _, block := range blocks[1:] {
		out = append(out, begin+block)
	}
	return out
}

// signature returns the detached signature of a file, binary or armoured, in binary form.
func (d *ReleaseDir) signature(name string) ([]byte, error) {
	for _, suffix := range []string{".sig", ".asc"} {
		data, err := d.read(name + suffix)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		sig, err := trust.BinarySignature(data)
		return sig, hint.Wrap(err, "sign %s again with gpg --detach-sign", name)
	}
	// Publishers with several keys put the ID of the key into the name.
	if byKey, err := fs.Glob(d.root.FS(), name+".*.sig"); err == nil && len(byKey) > 0 {
		return nil, hint.Wrap(fmt.Errorf("there is no %s.sig, but %s: %w", name, strings.Join(byKey[:min(len(byKey), maxListed)], ", "), trust.ErrUnsigned),
			"copy the signature by the key in --public-key to %s.sig", name)
	}
	return nil, hint.Wrap(fmt.Errorf("there is no %s.sig: %w", name, trust.ErrUnsigned),
		"sign it with gpg --detach-sign, or leave out --public-key and accept it with --allow-unsigned")
}

// whatIsThere returns the hint for a folder with other releases than the given one.
func (d *ReleaseDir) whatIsThere() string {
	found, err := fs.Glob(d.root.FS(), "*_SHA256SUMS")
	if err != nil || len(found) == 0 {
		return helpReleaseDir
	}
	return fmt.Sprintf("there is %s: correct the type or the version in --as, or name another folder", strings.Join(found[:min(len(found), maxListed)], ", "))
}

func (d *ReleaseDir) read(name string) ([]byte, error) {
	f, _, err := openFile(d.root, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := document.ReadAll(f, maxDocumentBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// packageNames returns the platforms with a package in SHA256SUMS or in the folder, and the names of
// their packages. If the folder has a zip that SHA256SUMS does not list, the release is broken, and
// package trust reports the error.
func (d *ReleaseDir) packageNames(a provider.Address, v provider.Version, sums []byte) (map[provider.Platform]string, error) {
	zips, err := fs.Glob(d.root.FS(), "*.zip")
	if err != nil {
		return nil, err
	}
	out := map[provider.Platform]string{}
	for _, name := range append(strings.Fields(string(sums)), zips...) {
		p, ok := provider.NamedPlatform(name, a, v)
		// The published name precedes other spellings, and names in SHA256SUMS precede the names of zips in
		// the folder.
		if ok && (out[p] == "" || name == provider.PackageFilename(a, v, p)) {
			out[p] = name
		}
	}
	if len(out) == 0 {
		return nil, hint.New("SHA256SUMS lists no "+provider.PackageFilename(a, v, provider.Platform{OS: "OS", Arch: "ARCH"}),
			"it must list every package under that name; "+helpReleaseDir)
	}
	return out, nil
}

// protocols reads the plugin protocols of a release from the registry manifest. The manifest has one of two names,
// its name in a release or its name in the source tree, with the same content. If SHA256SUMS lists the manifest,
// under either name, protocols adds it to the announced files, so that package trust verifies its checksum.
func (d *ReleaseDir) protocols(r *Release) error {
	c := &r.Claims
	released, err := d.find(c.Provider, c.Version, "manifest.json")
	if err != nil {
		return err
	}
	names := []string{released, "terraform-registry-manifest.json"}
	listed := slices.DeleteFunc(strings.Fields(string(c.SHA256SUMS)), func(name string) bool {
		return name != names[1] && !provider.SpellsFile(name, c.Provider, c.Version, "manifest.json")
	})
	for _, name := range names {
		data, err := d.read(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		c.Announced = map[string][sha256.Size]byte{}
		for _, l := range listed {
			c.Announced[l] = sha256.Sum256(data)
		}
		var manifest struct {
			Metadata struct {
				ProtocolVersions []string `json:"protocol_versions"`
			} `json:"metadata"`
		}
		if err := versionLimits.Unmarshal(data, &manifest); err != nil {
			return hint.Wrap(fmt.Errorf("%s: %w", name, err), `a registry manifest is {"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`)
		}
		r.Protocols = manifest.Metadata.ProtocolVersions
		return nil
	}
	if len(listed) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the plugin protocols are unknown: SHA256SUMS lists %s, which the release folder lacks; add it, or %s of the source tree, and push with --refresh-evidence if the version is stored", listed[0], names[1]))
	}
	return nil
}
