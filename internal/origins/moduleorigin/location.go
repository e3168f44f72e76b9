package moduleorigin

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ocibridge/ocibridge/artifact"
	"github.com/ocibridge/ocibridge/internal/base/hint"
)

// ErrLocation means that ocibridge cannot fetch modules from a location.
var ErrLocation = errors.New("modules cannot be fetched from this location")

// The formats of archives that are unpacked.
const (
	formatTarGz = "tar.gz"
	formatZip   = "zip"
)

// formats maps the names of archive formats in go-getter to the formats that are unpacked, or to "" for a format that
// only clients unpack. The parameter archive and the end of the URL's path give such a name.
var formats = map[string]string{
	"tar.gz": formatTarGz, "tgz": formatTarGz, "zip": formatZip,
	"bz2": "", "gz": "", "xz": "", "tar.bz2": "", "tar.tbz2": "", "tar.xz": "", "txz": "",
}

// Location is where a package of modules is: a Git repository, or an archive.
type Location struct {
	Git    bool
	Ref    string // of a Git repository: a tag, a branch or a commit; "" means the default branch
	Depth  int    // of a Git repository: how many commits clients fetch; 0 means all
	Folder string // of the module in the package, with slashes; "" means the root
	format string // of an archive
	sum    checksum
	given  [2]string // the parameters archive and checksum as they were written, for String
	url    *url.URL  // without the parameters of go-getter; it can contain secrets
	// registry is the host of the registry that announced the location; nil: none did
	registry *url.URL
}

// ParseLocation parses a location as clients do. Errors wrap [ErrLocation].
func ParseLocation(raw string) (Location, error) {
	l, err := parseLocation(raw)
	if err != nil {
		return Location{}, hint.Wrap(fmt.Errorf("%w: %w", ErrLocation, err),
			"ocibridge fetches modules from Git repositories over https and from https archives in tar.gz or zip. Clone the module, and push its folder with ocibridge module push DIR --as")
	}
	return l, nil
}

var forced = regexp.MustCompile(`^([A-Za-z0-9]+)::(.+)$`)

func parseLocation(raw string) (Location, error) {
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Location{}, errors.New("it has control characters, or is not UTF-8")
	}
	if strings.Contains(raw, "#") {
		return Location{}, errors.New("it has a fragment")
	}
	// 1. Separate what go-getter separates: the forced getter, and the folder.
	getter, address := "", raw
	if m := forced.FindStringSubmatch(raw); m != nil {
		getter, address = m[1], m[2]
	}
	address, folder := splitFolder(address)
	// 2. Expand the shorthands.
	u, err := url.Parse(address)
	if err != nil || u.Scheme == "" {
		if getter, address, folder, err = expand(getter, address, folder); err != nil {
			return Location{}, err
		}
		if u, err = url.Parse(address); err != nil {
			return Location{}, errors.New("it is not a URL")
		}
	}
	if getter == "" {
		getter = u.Scheme
	}
	// 3. Read the parameters.
	l := Location{url: u}
	if l.Folder, err = cleanFolder(folder); err != nil {
		return Location{}, err
	}
	switch {
	case getter == "git" && u.Scheme == "https":
		err = l.readGit()
	case getter == "https" && u.Scheme == "https":
		err = l.readArchive()
	case getter == "git" || getter == "http" || getter == "https":
		err = fmt.Errorf("it is of the scheme %.20q, not https", getter+"::"+u.Scheme)
	default:
		err = fmt.Errorf("it is of the kind %.20q", getter)
	}
	switch {
	case err != nil:
	case u.Host == "" || u.Opaque != "":
		err = errors.New("it has no host")
	case len(u.Path) < 2 || strings.Contains(u.Path, "//"):
		err = errors.New("its path is empty, or has an empty part")
	}
	return l, err
}

// splitFolder separates the folder after a // from the address. A query that follows the folder stays with the address.
func splitFolder(address string) (rest, folder string) {
	before, query, hasQuery := strings.Cut(address, "?")
	from := 0
	if i := strings.Index(before, "://"); i >= 0 {
		from = i + len("://")
	}
	i := strings.Index(before[from:], "//")
	if i < 0 {
		return address, ""
	}
	rest, folder = before[:from+i], before[from+i+2:]
	if hasQuery {
		rest += "?" + query
	}
	return rest, folder
}

// expand expands the shorthands github.com/OWNER/REPOSITORY and bitbucket.org/OWNER/REPOSITORY. More parts of the path are
// a folder.
func expand(getter, address, folder string) (string, string, string, error) {
	name, query, hasQuery := strings.Cut(address, "?")
	parts := strings.Split(name, "/")
	switch {
	case strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") || strings.HasPrefix(name, "/"):
		return "", "", "", errors.New("it is a folder of the client's own machine")
	case strings.HasPrefix(name, "git@") || strings.Contains(parts[0], "@"):
		return "", "", "", errors.New("it is a Git repository over SSH, for which only the client has a key")
	case parts[0] != "github.com" && parts[0] != "bitbucket.org" || len(parts) < 3 || getter != "" && getter != "git":
		return "", "", "", errors.New("it is not a URL, and none of the shorthands github.com/OWNER/REPOSITORY and bitbucket.org/OWNER/REPOSITORY")
	}
	repository := "https://" + strings.Join(parts[:3], "/")
	if parts[0] == "github.com" && !strings.HasSuffix(repository, ".git") {
		repository += ".git"
	}
	if hasQuery {
		repository += "?" + query
	}
	return "git", repository, path.Join(strings.Join(parts[3:], "/"), folder), nil
}

// cleanFolder checks a folder. Clients of registries do not expand wildcards: they look for a folder with the name *.
func cleanFolder(folder string) (string, error) {
	if folder == "" {
		return "", nil
	}
	clean := path.Clean(folder)
	switch {
	case clean == "." || strings.HasPrefix(clean, "/"), slices.Contains(strings.Split(strings.ReplaceAll(folder, "\\", "/"), "/"), ".."):
		return "", fmt.Errorf("its folder %q is not a folder inside the package", folder)
	case strings.ContainsAny(clean, "*?"):
		return "", fmt.Errorf("its folder %q has a wildcard, which Terraform and OpenTofu do not expand in the answer of a registry: they cannot install this version", folder)
	}
	return clean, artifact.CheckFolder(clean)
}

// readGit reads the parameters of a Git repository.
func (l *Location) readGit() error {
	l.Git = true
	q := l.url.Query()
	l.Ref = q.Get("ref")
	if n, err := strconv.Atoi(q.Get("depth")); err == nil && n > 0 {
		l.Depth = n
	}
	q.Del("ref")
	q.Del("depth")
	for name := range q {
		return fmt.Errorf("it has the parameter %.40q; of a Git repository, only ref and depth are known", name)
	}
	l.url.RawQuery, l.url.ForceQuery = "", false
	return nil
}

// readArchive reads the parameters of an archive. Other parameters stay in the URL.
func (l *Location) readArchive() (err error) {
	q := l.url.Query()
	name := q.Get("archive")
	l.given = [2]string{name, q.Get("checksum")}
	if off, err := strconv.ParseBool(name); err == nil && !off {
		return errors.New("its parameter archive says that it is no archive")
	}
	if name == "" {
		for end := range formats {
			if strings.HasSuffix(l.url.Path, "."+end) && len(end) > len(name) {
				name = end
			}
		}
	}
	format, known := formats[name]
	switch {
	case name == "":
		return errors.New("its path does not end like that of an archive, such as .tar.gz or .zip, and it has no parameter archive")
	case format == "":
		return fmt.Errorf("its format is %.20q, which %s", name, map[bool]string{true: "only clients unpack", false: "clients do not know"}[known])
	}
	l.format = format
	if l.sum, err = parseChecksum(l.given[1]); err != nil {
		return err
	}
	if q.Has("archive") || q.Has("checksum") {
		q.Del("archive")
		q.Del("checksum")
		l.url.RawQuery, l.url.ForceQuery = q.Encode(), false
	}
	return nil
}

// Same reports whether two locations are equal, with their secrets.
func (l Location) Same(other Location) bool {
	return l.String() == other.String() && l.url.String() == other.url.String()
}

// Host returns the host in the location, with the port if it has one.
func (l Location) Host() string { return l.url.Host }

// String returns the location in the form of go-getter, without the user, the password and other parameters than ref, depth,
// archive and checksum, because these can be secrets.
func (l Location) String() string {
	if l.url == nil {
		return ""
	}
	u := url.URL{Scheme: l.url.Scheme, Host: l.url.Host, Path: l.url.Path, RawPath: l.url.RawPath}
	out := u.String()
	if l.Folder != "" {
		out += "//" + l.Folder
	}
	q := url.Values{}
	for name, value := range map[string]string{"ref": l.Ref, "archive": l.given[0], "checksum": l.given[1]} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if l.Depth > 0 {
		q.Set("depth", strconv.Itoa(l.Depth))
	}
	if len(q) > 0 {
		out += "?" + q.Encode()
	}
	if l.Git {
		out = "git::" + out
	}
	return out
}

// checksum is what an archive must hash to. The zero value allows every archive.
type checksum struct {
	kind string // md5, sha1, sha256 or sha512
	sum  string // the raw bytes
}

// sumSizes maps the kinds of checksums to their sizes in bytes.
var sumSizes = map[string]int{"md5": 16, "sha1": 20, "sha256": 32, "sha512": 64}

// parseChecksum parses the parameter checksum: HEX or KIND:HEX. The length of HEX decides if there is no kind.
func parseChecksum(s string) (checksum, error) {
	if s == "" {
		return checksum{}, nil
	}
	kind, text, hasKind := strings.Cut(s, ":")
	if !hasKind {
		kind, text = "", s
	}
	kind = strings.ToLower(kind)
	if kind == "file" {
		return checksum{}, errors.New("its checksum is in a file of its own, which ocibridge does not read")
	}
	sum, err := hex.DecodeString(text)
	for name, size := range sumSizes {
		if err == nil && len(sum) == size && (name == kind || kind == "") {
			return checksum{name, string(sum)}, nil
		}
	}
	return checksum{}, errors.New("its checksum is none of MD5, SHA-1, SHA-256 and SHA-512")
}
