package moduleorigin_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ocibridge/ocibridge/internal/origins/moduleorigin"
)

// TestParseLocation shows how the locations of registries are read. What String returns contains no secret, and is read
// as the same location.
func TestParseLocation(t *testing.T) {
	for raw, want := range map[string]struct {
		text, folder string
	}{
		"git::https://github.com/acme/vpc?ref=1.2.3":                                 {"git::https://github.com/acme/vpc?ref=1.2.3", ""},
		"git::https://github.com/acme/vpc.git//modules/a?depth=1&ref=v1":             {"git::https://github.com/acme/vpc.git//modules/a?depth=1&ref=v1", "modules/a"},
		"git::https://u:secret@git.acme.example:8443/vpc?ref=v1":                     {"git::https://git.acme.example:8443/vpc?ref=v1", ""},
		"git::https://git.acme.example/vpc?depth=x":                                  {"git::https://git.acme.example/vpc", ""},
		"github.com/acme/vpc":                                                        {"git::https://github.com/acme/vpc.git", ""},
		"github.com/acme/vpc.git//a?ref=feature/x":                                   {"git::https://github.com/acme/vpc.git//a?ref=feature%2Fx", "a"},
		"github.com/acme/vpc/a/b//c?ref=v1":                                          {"git::https://github.com/acme/vpc.git//a/b/c?ref=v1", "a/b/c"},
		"bitbucket.org/acme/vpc?ref=v1":                                              {"git::https://bitbucket.org/acme/vpc?ref=v1", ""},
		"https://files.acme.example/vpc.tar.gz":                                      {"https://files.acme.example/vpc.tar.gz", ""},
		"https://files.acme.example/vpc-1.tgz//vpc-1":                                {"https://files.acme.example/vpc-1.tgz//vpc-1", "vpc-1"},
		"https://files.acme.example/x?archive=zip&token=secret":                      {"https://files.acme.example/x?archive=zip", ""},
		"https://files.acme.example/x.zip//a/?X-Amz-Signature=secret":                {"https://files.acme.example/x.zip//a", "a"},
		"https::https://files.acme.example/x.zip":                                    {"https://files.acme.example/x.zip", ""},
		"https://f.acme.example/x.zip?checksum=md5:d41d8cd98f00b204e9800998ecf8427e": {"https://f.acme.example/x.zip?checksum=md5%3Ad41d8cd98f00b204e9800998ecf8427e", ""},
	} {
		l, err := moduleorigin.ParseLocation(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if l.String() != want.text || l.Folder != want.folder {
			t.Errorf("%s is read as %s with the folder %q, want %s with %q", raw, l, l.Folder, want.text, want.folder)
		}
		if again, err := moduleorigin.ParseLocation(l.String()); err != nil || again.String() != l.String() {
			t.Errorf("%s: read again: %s, %v", raw, again, err)
		}
	}
}

// TestParseLocationRefuses shows the locations that ocibridge cannot fetch from, and why.
func TestParseLocationRefuses(t *testing.T) {
	for raw, says := range map[string]string{
		"git::ssh://git@github.com/acme/vpc?ref=secret":               `"git::ssh"`,
		"git@github.com:acme/vpc.git":                                 "over SSH",
		"git::git@github.com:acme/vpc.git":                            "over SSH",
		"git::http://git.acme.example/vpc":                            "not https",
		"http://files.acme.example/vpc.zip":                           "not https",
		"s3::https://s3.amazonaws.com/b/vpc.zip":                      `"s3"`,
		"gcs::https://www.googleapis.com/storage/v1/b/x":              `"gcs"`,
		"hg::https://hg.acme.example/vpc":                             `"hg"`,
		"oci://ghcr.io/acme/vpc":                                      `"oci"`,
		"file:///etc":                                                 `"file"`,
		"./vpc":                                                       "own machine",
		"/etc":                                                        "own machine",
		"acme/vpc/aws":                                                "none of the shorthands",
		"github.com/acme":                                             "none of the shorthands",
		"":                                                            "none of the shorthands",
		"https://github.com/acme/vpc":                                 "no parameter archive",
		"https://f.acme.example/x.tar.xz":                             "only clients unpack",
		"https://f.acme.example/x?archive=rar":                        "clients do not know",
		"https://f.acme.example/x.zip?archive=false":                  "no archive",
		"https://f.acme.example/x.tar.gz//*":                          "wildcard",
		"https://api.github.com/x//*?archive=tar.gz":                  "wildcard",
		"https://f.acme.example/x.zip//a/../../b":                     "not a folder inside",
		"https://f.acme.example/x.zip///etc":                          "not a folder inside",
		"https://f.acme.example/x.zip//a%20b":                         "not a path that every client reads alike",
		"git::https://f.acme.example/x//a b":                          "not a path that every client reads alike",
		"git::https://f.acme.example/x//\u00e4":                       "not a path that every client reads alike",
		"git::https://f.acme.example/x//" + strings.Repeat("a", 1025): "not a path that every client reads alike",
		"https://f.acme.example/x.zip?checksum=file:x":                "file of its own",
		"https://f.acme.example/x.zip?checksum=abc":                   "none of MD5",
		"https://f.acme.example/x.zip?checksum=sha256:abcd":           "none of MD5",
		"git::https://f.acme.example/x?token=secret":                  `"token"`,
		"git::https:x":                                                "no host",
		"https://f.acme.example/x.zip\n":                              "control characters",
	} {
		l, err := moduleorigin.ParseLocation(raw)
		if !errors.Is(err, moduleorigin.ErrLocation) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, %v, want %q", raw, l, err, says)
		}
	}
}

// TestSameLocation checks that locations with other secrets or other parameters are not the same, although their texts are.
func TestSameLocation(t *testing.T) {
	parse := func(raw string) moduleorigin.Location {
		l, err := moduleorigin.ParseLocation(raw)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	const raw = "https://files.acme.example/vpc.zip//a?id=1"
	for other, same := range map[string]bool{raw: true, "https://files.acme.example/vpc.zip//a?id=2": false, "https://u:p@files.acme.example/vpc.zip//a?id=1": false, "https://files.acme.example/vpc.zip//b?id=1": false} {
		if parse(raw).Same(parse(other)) != same {
			t.Errorf("%s and %s: not %t", raw, other, same)
		}
	}
}

// FuzzParseLocation checks that what String returns is read as the same location.
func FuzzParseLocation(f *testing.F) {
	for _, raw := range []string{
		"git::https://u:p@github.com/acme/vpc.git//modules/a?depth=1&ref=v1", "github.com/a/b/c//d?ref=x", "https://f.example/x.tar.gz//y?checksum=d41d8cd98f00b204e9800998ecf8427e",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		l, err := moduleorigin.ParseLocation(raw)
		if err != nil {
			return
		}
		again, err := moduleorigin.ParseLocation(l.String())
		if err != nil || again.String() != l.String() || again.Folder != l.Folder || again.Ref != l.Ref || again.Depth != l.Depth {
			t.Errorf("%q is read as %q, and that as %q, %v", raw, l, again, err)
		}
	})
}
