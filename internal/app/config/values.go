package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/mail"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/opencontainers/go-digest"
	"github.com/opentofu/svchost"
	"golang.org/x/net/idna"

	"github.com/ocibridge/ocibridge/auth/login"
	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/base/files"
	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/registries/query"
	"github.com/ocibridge/ocibridge/module"
	"github.com/ocibridge/ocibridge/ociaddr"
	"github.com/ocibridge/ocibridge/provider"
	"github.com/ocibridge/ocibridge/trust"
)

// ParseDuration parses a duration in the syntax of [time.ParseDuration], with two more units: d
// for days of 24 hours, and w for weeks.
func ParseDuration(s string) (time.Duration, error) {
	const help = "a duration is a number and a unit, such as 30s, 15m, 12h, 7d or 1w"
	d, err := time.ParseDuration(daysAndWeeks.ReplaceAllStringFunc(s, inHours))
	switch {
	case digits.MatchString(s):
		return 0, hint.New(fmt.Sprintf("%q has no unit", s), "write %ss for seconds; %s", s, help)
	case err != nil:
		return 0, hint.New(fmt.Sprintf("%q is no duration", s), "%s", help)
	case d < 0:
		return 0, hint.New(fmt.Sprintf("%q is negative", s), "%s", help)
	}
	return d, nil
}

// MinUnused is the minimum of unused in a retention block. The gateway records once a day that a
// version is used.
const MinUnused = 48 * time.Hour

// ParseUnused parses the time for which a version may be unused.
func ParseUnused(s string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err == nil && d < MinUnused {
		err = hint.New(fmt.Sprintf("%q is too short", s), "give at least 2d: the gateway records once a day that a version is used")
	}
	return d, err
}

// inHours converts a number of days or weeks, such as 1.5d, to hours. It returns s unchanged if
// the number is invalid.
func inHours(s string) string {
	last := len(s) - 1
	n, err := strconv.ParseFloat(s[:last], 64)
	if err != nil {
		return s
	}
	if s[last] == 'w' {
		n *= 7
	}
	return strconv.FormatFloat(n*24, 'f', -1, 64) + "h"
}

// parsers returns the parsers for single arguments, by name, and the parsers for kinds of
// values. A parser converts a value that HCL has decoded. The parser of a list converts one
// element.
func (d *decoder) parsers() (byName, byKind map[string]any) {
	byName = map[string]any{
		"issuer": parseIssuer, "latest": numberTo(1000), "public_url": ParsePublicURL, "requests_per_second": parseRate,
		"shutdown_timeout": parsePositiveDuration, "stale_if_error": parseDurationOrNone, "tag_ttl": parseDurationOrNone,
		"timeout": parsePositiveDuration, "unused": ParseUnused,
	}
	byKind = map[string]any{
		"HOST:PORT": parseListen, "copy, link or off": parseStore, "URL": parseEndpoint, "address": parseEmail,
		"duration": ParseDuration, "file": d.parsePath, "files": d.parsePath, "fingerprints": parseFingerprint, "folder": d.parsePath,
		"level": parseLevel, "list of names": parseDomain, "list of text": parseScope, "list of two numbers": parsePorts,
		"map of text": parseClaims, "name": parseText, "number": numberTo(MaxCount), "off or required": parseVerify,
		"module patterns": module.ParsePattern, "provider and module patterns": query.ParsePattern,
		"identity": parseIdentity, "patterns": provider.ParsePattern, "platforms": provider.ParsePlatform, "predicate type": parsePredicate,
		"public key in PEM": parseText, "secret": parseSecret, "sha256": parseSHA256,
		"size": ParseSize, "source": d.parseSource, "text": parseText, "text or json": parseFormat, "time": parseTime,
		"unsigned": parseUnsigned, "version constraint": provider.ParseConstraint,
		// Kinds of labels.
		"oidc name": parseName, "provider address": provider.ParseAddress, "module address": module.ParseAddress, "registry": ociaddr.ParseRegistry,
		"requirement name": parseRequirementName, "token name": parseName, "trust pattern": query.ParsePattern,
	}
	return byName, byKind
}

// numberTo returns a parser that accepts numbers from 1 to largest.
func numberTo(largest int) func(int) (int, error) {
	return func(n int) (int, error) {
		if n < 1 || n > largest {
			return 0, fmt.Errorf("%d is not a number from 1 to %d", n, largest)
		}
		return n, nil
	}
}

func parseRate(r float64) (float64, error) {
	if r <= 0 {
		return 0, fmt.Errorf("%v is not more than 0", r)
	}
	return r, nil
}

func parseSecret(s string) (login.Secret, error) {
	if s == "" {
		return login.Secret{}, hint.New("it is empty", "leave the argument out, or give it a value")
	}
	return login.NewSecret(s), nil
}

func parseClaims(claims map[string]string) (map[string]string, error) {
	if claims != nil && len(claims) == 0 {
		return nil, hint.New("a rule without claims is for every token that the issuer gives to anybody", "name the claims that a token must have")
	}
	return claims, nil
}

// parseDurationOrNone parses a duration for an option whose zero value means its default.
// It returns -1 for a duration of 0, because 0 would mean the default.
func parseDurationOrNone(s string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err == nil && d == 0 {
		d = -1
	}
	return d, err
}

func parsePositiveDuration(s string) (time.Duration, error) {
	d, err := ParseDuration(s)
	if err == nil && d == 0 {
		return 0, hint.New("it is no time at all", "leave the argument out for the default")
	}
	return d, err
}

var (
	digits       = regexp.MustCompile(`^[0-9]+$`)
	daysAndWeeks = regexp.MustCompile(`[0-9.]+[dw]`)
	size         = regexp.MustCompile(`^([0-9]+) ?([A-Za-z]*)$`)
)

// units maps units of sizes, in lower case, to bytes.
var units = map[string]int64{
	"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// ParseSize parses a size in bytes, such as 500MB or 20GiB.
func ParseSize(s string) (int64, error) {
	const help = "a size is a whole number and a unit, such as 500MB or 20GiB"
	m := size.FindStringSubmatch(s)
	if m == nil {
		return 0, hint.New(fmt.Sprintf("%q is no size", s), help)
	}
	unit, ok := units[strings.ToLower(m[2])]
	if !ok {
		return 0, hint.New(fmt.Sprintf("%q has an unknown unit", s), help+"; the units are B, KB, MB, GB, TB, KiB, MiB, GiB and TiB")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	switch {
	case err != nil || n > math.MaxInt64/unit:
		return 0, hint.New(fmt.Sprintf("%q is too large", s), help)
	case n == 0:
		return 0, hint.New("it is no room at all", "leave the argument out for the default")
	}
	return n * unit, nil
}

func parseListen(s string) (string, error) {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil && host != "" && net.ParseIP(host) == nil && !strings.Contains(host, "%") {
		_, err = ociaddr.ParseRegistry(host)
	}
	if err != nil {
		return "", hint.New(fmt.Sprintf("%q is no address to listen on", s), "write HOST:PORT, such as localhost:8443, or :8443 for every interface")
	}
	return s, nil
}

// ParsePublicURL checks the https URL with which clients reach a gateway. If the URL does
// not end in a slash, ParsePublicURL adds one. Clients that resolve a relative URL drop
// everything after the last slash.
func ParsePublicURL(s string) (string, error) {
	u, err := parseHTTPS(s)
	if err != nil {
		return "", err
	}
	if !strings.HasSuffix(u.Path, "/") {
		s += "/"
	}
	return s, nil
}

// parseHTTPS parses an https URL without user, query and fragment. Its errors do not quote a
// URL with a user, because that URL can also contain a password.
func parseHTTPS(s string) (*url.URL, error) {
	u, err := parseHTTPSWithQuery(s)
	if err == nil && (u.RawQuery != "" || u.Fragment != "" || u.ForceQuery) {
		return nil, hint.New("the URL has a query or a fragment", "leave it out")
	}
	return u, err
}

func parseHTTPSWithQuery(s string) (*url.URL, error) {
	const example = "such as https://providers.example.com/"
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return nil, hint.New("it is no URL", "write an https: URL, "+example)
	case u.User != nil:
		return nil, hint.New("the URL holds a user name", "leave it out: a URL is not kept secret")
	case u.Scheme == "":
		return nil, hint.New(fmt.Sprintf("%q is no absolute URL", ociaddr.HideLogin(s)), "begin it with https://")
	case u.Scheme != "https":
		return nil, hint.New(fmt.Sprintf("%q is not an https: URL", ociaddr.HideLogin(s)), "clients speak TLS only: write an https: URL, "+example)
	}
	// The host can be a name in Unicode or Punycode, or an IP address.
	_, unicode := svchost.ForComparison(u.Host)
	if _, ascii := ociaddr.ParseRegistry(u.Host); unicode != nil && ascii != nil {
		return nil, hint.New(fmt.Sprintf("%q names no host", ociaddr.HideLogin(s)), "write an https: URL, "+example)
	}
	return u, nil
}

func parseIssuer(s string) (string, error) {
	_, err := parseHTTPS(s)
	return s, err
}

// parseSource parses the source of a provider: origin, the URL of a mirror, or a folder.
func (d *decoder) parseSource(s string) (Source, error) {
	switch {
	case s != strings.TrimSpace(s):
		return Source{}, hint.New(fmt.Sprintf("the source %q begins or ends with a blank", s), "write it as %q", strings.TrimSpace(s))
	case s == "origin":
		return Source{}, nil
	case strings.Contains(s, "://"):
		u, err := ParsePublicURL(s)
		return Source{MirrorURL: u}, err
	case strings.HasPrefix(s, "./") || strings.HasPrefix(s, "../") || strings.HasPrefix(s, `.\`) || strings.HasPrefix(s, `..\`) || files.Paths(d.env.GOOS).IsAbs(s):
		path, err := d.parsePath(s)
		return Source{Folder: path}, err
	}
	return Source{}, hint.New(fmt.Sprintf("%q is no source", s), "write origin, the https: URL of a network mirror, or a folder, beginning with ./ if it is beside this file")
}

func parseLevel(s string) (slog.Level, error) {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, l.String()) {
			return l, nil
		}
	}
	return 0, hint.New(fmt.Sprintf("%q is no level", s), "write debug, info, warn or error")
}

func parseFormat(s string) (string, error) {
	if s != "text" && s != "json" {
		return "", hint.New(fmt.Sprintf("%q is no format of a log", s), "write text or json")
	}
	return s, nil
}

// Store is how exec lays packages.
type Store string

// The values of the argument store.
const (
	StoreCopy Store = "copy"
	StoreLink Store = "link"
	StoreOff  Store = "off"
)

func parseStore(s string) (Store, error) {
	if store := Store(s); store == StoreCopy || store == StoreLink || store == StoreOff {
		return store, nil
	}
	return "", hint.New(fmt.Sprintf("%q is not known", s), "write copy, link or off")
}

func parseVerify(s string) (required bool, err error) {
	if s != "off" && s != "required" {
		return false, hint.New(fmt.Sprintf("%q is not known", s), "write off or required")
	}
	return s == "required", nil
}

// unsigned is a value of allow_unsigned: "true", "false" or [trust.AsClients].
type unsigned string

// parseUnsigned parses a boolean, which HCL has converted to a text, or where-clients-do.
func parseUnsigned(s string) (unsigned, error) {
	switch s {
	case "true", "false", trust.AsClients:
		return unsigned(s), nil
	}
	return "", hint.New(fmt.Sprintf("%q is not known", s), "write true, false or %q", trust.AsClients)
}

// parseDeny parses PATTERN[@VERSIONS] and PATTERN@DIGEST.
func parseDeny(s string) (catalog.Deny, error) {
	name, versions, ok := strings.Cut(s, "@")
	p, err := query.ParsePattern(name)
	rule := catalog.Deny{Pattern: p}
	switch {
	case err != nil || !ok:
	case strings.HasPrefix(versions, "sha256:"):
		rule.Digest = digest.Digest(versions)
		if rule.Digest.Validate() != nil {
			err = hint.New(fmt.Sprintf("%q is not a digest", versions), "write sha256: and 64 lower-case hexadecimal digits, as ocibridge inspect prints the digest of the index or manifest")
		}
	default:
		rule.Versions, err = provider.ParseConstraint(versions)
	}
	return rule, err
}

// parseFingerprint parses the whole fingerprint of an OpenPGP key, with or without spaces. It
// refuses a key ID, because anyone can create a key with the same ID.
func parseFingerprint(s string) (string, error) {
	const help = "learn it with: ocibridge fingerprint FILE"
	f := strings.ToUpper(strings.Join(strings.Fields(strings.TrimPrefix(strings.TrimPrefix(s, "0x"), "0X")), ""))
	_, err := hex.DecodeString(f)
	switch {
	case err != nil:
		return "", hint.New(fmt.Sprintf("%q is not hexadecimal", s), help)
	case len(f) != 40 && len(f) != 64:
		return "", hint.New(fmt.Sprintf("%q has %d digits, and a fingerprint has 40 (or 64)", s, len(f)), "give the whole fingerprint, for others can make a key with the same ID; "+help)
	}
	return f, nil
}

// parseSHA256 parses a SHA-256 sum. Its errors do not quote s, because s can be the token
// itself by mistake.
func parseSHA256(s string) (sum [sha256.Size]byte, err error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != sha256.Size {
		return sum, hint.New("it is not a SHA-256 sum in hexadecimal, which has 64 digits", `put there what printf %%s "$TOKEN" | sha256sum prints first, and never the token`)
	}
	copy(sum[:], b)
	if sum == sha256.Sum256(nil) {
		return sum, hint.New("it is the sum of no text at all", "was the variable with the token set?")
	}
	return sum, nil
}

func parseTime(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, hint.New(fmt.Sprintf("%q is no time", s), "write a date, such as 2027-01-31, or a time, such as 2027-01-31T12:00:00Z")
}

func parseText(s string) (string, error) {
	if s == "" {
		return "", errors.New("it is empty")
	}
	return s, nil
}

var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// parseName checks the name of a token or issuer. The name appears in logs.
func parseName(s string) (string, error) {
	if !name.MatchString(s) {
		return "", hint.New(fmt.Sprintf("%q is no name", s), "a name is letters, digits, dots, dashes and underscores, at most 64")
	}
	return s, nil
}

// maxRequirementName is the maximum length of a requirement's name in bytes.
const maxRequirementName = 64

// parseRequirementName checks the name of a requirement. Clients and people see the name.
func parseRequirementName(s string) (string, error) {
	if s == "" || len(s) > maxRequirementName || s != strings.TrimSpace(s) || !isLine(s) || strings.ContainsAny(s, `"\\`) {
		return "", hint.New(fmt.Sprintf("%q is not the name of a requirement", s), "write at most %d bytes of text without quotation marks, such as \"platform team\"", maxRequirementName)
	}
	return s, nil
}

// isLine reports whether s is one line of printable text.
func isLine(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// maxIdentity is the maximum length in bytes of an identity and of a predicate type.
const maxIdentity = 1024

// parseIdentity parses the identity of a signer: a URI or an email address, in which * is a wildcard.
func parseIdentity(s string) (string, error) {
	switch {
	case s == "" || len(s) > maxIdentity || s != strings.TrimSpace(s) || !isLine(s):
		return "", hint.New(fmt.Sprintf("%.80q is not an identity", s), "write the URI or the email address in the signer's certificate")
	case strings.Trim(s, "*/:@.") == "":
		return "", hint.New(fmt.Sprintf("%q is the identity of everybody", s), "write the URI or the email address in the signer's certificate, with * for the parts that vary")
	}
	return s, nil
}

// parsePredicate parses a predicate type, which is a URI.
func parsePredicate(s string) (string, error) {
	u, err := url.Parse(s)
	if err != nil || !u.IsAbs() || len(s) > maxIdentity || !isLine(s) || strings.Contains(s, " ") {
		return "", hint.New(fmt.Sprintf("%.80q is not a predicate type", s), "write its URI, such as https://slsa.dev/provenance/v1")
	}
	return s, nil
}

// parseDomain parses a host name. It refuses wildcards and other names that a certificate
// authority cannot validate by connecting to them.
func parseDomain(s string) (string, error) {
	ascii, err := idna.Lookup.ToASCII(s)
	switch {
	case strings.HasPrefix(s, "*."):
		return "", hint.New(fmt.Sprintf("%q stands for many names", s), "name each: for wildcards, authorities ask back in the DNS, which is not done here")
	case net.ParseIP(s) != nil:
		return "", hint.New(fmt.Sprintf("%q is an address", s), "write the name by which clients reach the gateway")
	case err != nil || !strings.Contains(ascii, ".") || strings.HasSuffix(ascii, "."):
		return "", hint.New(fmt.Sprintf("%q is no public name of a host", s), "write one such as providers.example.com")
	}
	return s, nil
}

func parseEmail(s string) (string, error) {
	a, err := mail.ParseAddress(s)
	if err != nil || a.Address != s {
		return "", hint.New(fmt.Sprintf("%q is no address", s), "write one such as ops@example.com")
	}
	return s, nil
}

// parsePorts parses a range of ports. A range has at least two ports, because clients never use
// the last one.
func parsePorts(ports []int) ([2]int, error) {
	if len(ports) != 2 || ports[0] < 1024 || ports[1] > 65535 || ports[0] >= ports[1] {
		return [2]int{}, hint.New("it is no range of ports", "write two that differ, from 1024 to 65535, such as [10000, 10010]")
	}
	return [2]int(ports), nil
}

// parseEndpoint parses the URL of an endpoint. It allows a query in the URL, because some
// issuers read the purpose of a token from the query.
func parseEndpoint(s string) (string, error) {
	u, err := parseHTTPSWithQuery(s)
	if err == nil && (u.Fragment != "" || u.ForceQuery) {
		err = hint.New("the URL has a fragment", "leave it out")
	}
	return s, err
}

// parseScope parses a scope of OAuth 2.0 (RFC 6749, section 3.3).
func parseScope(s string) (string, error) {
	for _, c := range s {
		if c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return "", hint.New(fmt.Sprintf("%q is no scope", s), "write one scope an element, without blanks, such as [\"openid\", \"profile\"]")
		}
	}
	if s == "" {
		return "", hint.New("a scope is empty", "leave it out")
	}
	return s, nil
}
