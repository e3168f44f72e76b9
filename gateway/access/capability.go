package access

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/ocibridge/ocibridge/internal/base/hint"
	"github.com/ocibridge/ocibridge/internal/base/subject"
)

// A capability is the segment of a path before a file's name. It consists of mark and, in URL-safe base64,
//
//	8 bytes   the expiry, in seconds since 1970
//	16 bytes  the grant, as an HMAC
//	32 bytes  the SHA-256 sum of the file's digest, as text
//	32 bytes  the HMAC-SHA256 of all of this, and of the path without the segment
const (
	mark     = "cap1."
	timeSize = 8
	idSize   = 16
	signed   = timeSize + idSize + sha256.Size
	size     = signed + sha256.Size
)

// Lifetime is the maximum lifetime of a capability. Its expiry is rounded down to a full minute, so that requests
// within one minute get the same capability.
const Lifetime = 15 * time.Minute

// encoding is strict, so that exactly one text decodes to each capability.
var encoding = base64.RawURLEncoding.Strict()

// Link returns ref with a capability for the client that sent r. ref is the path of a file of a provider or a module, absolute
// or relative to the request's path. d is the digest of the file. A nil control returns ref unchanged. The
// handler that serves the file must be behind [Guard], and must call [Covers] before it sends the file.
func (c *Control) Link(r *http.Request, of subject.Address, ref string, d digest.Digest) string {
	if c == nil {
		return ref
	}
	s := stateOf(r.Context()).client
	if s == nil {
		return ref // the request has no token, and only a client with a token gets capabilities
	}
	g := s.grantFor(of)
	if g == nil {
		return ref // cannot happen behind Guard; the link does not work without a capability
	}
	file, err := url.PathUnescape(ref)
	if err != nil {
		return ref
	}
	if !strings.HasPrefix(file, "/") {
		file = path.Join(path.Dir(r.URL.Path), file)
	}
	ends := time.Now().Add(Lifetime).Truncate(time.Minute)
	if !s.expires.IsZero() && s.expires.Before(ends) {
		ends = s.expires
	}
	at := strings.LastIndexByte(ref, '/') + 1
	return ref[:at] + c.sign(g, ends, sha256.Sum256([]byte(d)), file) + "/" + ref[at:]
}

func (c *Control) sign(g *grant, ends time.Time, what [sha256.Size]byte, file string) string {
	key := c.current().keys[0]
	out := binary.BigEndian.AppendUint64(make([]byte, 0, size), uint64(ends.Unix()))
	out = append(out, grantID(key, g)...)
	out = append(out, what[:]...)
	return mark + encoding.EncodeToString(append(out, capabilityMAC(key, out, file)...))
}

func capabilityMAC(key, claims []byte, file string) []byte {
	return mac(key, []byte("capability\x00"), claims, []byte(file))
}

// verify checks a capability for a file of the given provider or module. It returns the grant, which is nil if the
// capability is invalid, and the hash of the digest that the capability covers. The amount of work does not depend on
// the reason why a capability is invalid.
func (c *Control) verify(capability, file string, of subject.Address, now time.Time) (*grant, [sha256.Size]byte) {
	var raw [size]byte
	text := strings.TrimPrefix(capability, mark)
	wellFormed := 0
	if len(text) == encoding.EncodedLen(size) {
		if _, err := encoding.Decode(raw[:], []byte(text)); err == nil {
			wellFormed = 1
		}
	}
	ring, found := c.current(), -1
	for k, key := range ring.keys {
		ours := c.equal(capabilityMAC(key, raw[:signed], file), raw[signed:]) & wellFormed
		for g, id := range ring.ids[k] {
			same := c.equal(id, raw[timeSize:timeSize+idSize])
			// Two rules of an issuer with the same claims have the same ID, but may select different providers.
			if !c.grants[g].scope.Selects(of) {
				same = 0
			}
			found = subtle.ConstantTimeSelect(ours&same, g, found)
		}
	}
	ends := time.Unix(int64(binary.BigEndian.Uint64(raw[:timeSize])), 0)
	if found < 0 || !now.Before(ends) || c.grants[found].expired(now) {
		return nil, [sha256.Size]byte{}
	}
	return c.grants[found], [sha256.Size]byte(raw[timeSize+idSize : signed])
}

// Covers reports whether a request may read the content with the given digest. A request with a capability may read only
// the content that the capability covers.
func Covers(ctx context.Context, d digest.Digest) bool {
	s := stateOf(ctx)
	sum := sha256.Sum256([]byte(d))
	return s.capability == "" || subtle.ConstantTimeCompare(s.digest[:], sum[:]) == 1
}

// split returns a path without its capability, and the capability, which is "" if there is none. It redacts all other
// segments of the path that might be a capability.
func split(p string) (without, capability string) {
	if !strings.Contains(p, mark) {
		return p, ""
	}
	parts := strings.Split(p, "/")
	if i := len(parts) - 2; i > 0 && strings.HasPrefix(parts[i], mark) {
		capability = parts[i]
		parts = slices.Delete(parts, i, i+1)
	}
	for i, part := range parts {
		if strings.HasPrefix(part, mark) && len(part) >= len(mark)+encoding.EncodedLen(size) {
			parts[i] = mark + redacted
		}
	}
	return strings.Join(parts, "/"), capability
}

// redacted replaces capabilities and keys in paths and logs.
const redacted = "REDACTED"

const (
	keySize = 32 // the minimum size of a key, in bytes
	maxKeys = 16
)

// Keys sign and verify capabilities. The first key signs new ones. A capability is valid if any of the keys has signed it.
type Keys struct{ keys [][]byte }

// CheckMode returns an error if the mode of a key file gives access to users outside of its group.
func CheckMode(file string, mode fs.FileMode) error {
	if mode.Perm()&0o007 == 0 {
		return nil
	}
	return hint.New(fmt.Sprintf("other users can use %s: its mode is %04o", file, mode.Perm()),
		"its readers can read every provider: run chmod o-rwx %s, or set defaultMode = 0440 of the Kubernetes secret", file)
}

// ParseKeys parses a key file. Each line has one key of at least 32 bytes, in hexadecimal. The first key signs
// new capabilities. ParseKeys ignores empty lines and lines that begin with #. Its errors do not quote the
// file.
func ParseKeys(file []byte) (*Keys, error) {
	const help = "make one with: openssl rand -hex 32"
	k := &Keys{}
	for i, line := range bytes.Split(file, []byte("\n")) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		key, err := hex.DecodeString(string(line))
		if err != nil || len(key) < keySize {
			return nil, hint.New(fmt.Sprintf("line %d is no key", i+1), "a key is %d or more hexadecimal digits on a line of its own; "+help, 2*keySize)
		}
		k.keys = append(k.keys, key)
	}
	switch {
	case len(k.keys) == 0:
		return nil, hint.New("there is no key in it", help)
	case len(k.keys) > maxKeys:
		return nil, hint.New(fmt.Sprintf("it has %d keys, more than %d", len(k.keys), maxKeys), "remove the old ones: capabilities last for 15 minutes")
	}
	return k, nil
}

// RandomKeys returns a new random key.
func RandomKeys() *Keys {
	key := make([]byte, keySize)
	rand.Read(key) // never fails
	return &Keys{[][]byte{key}}
}

// String keeps the keys out of logs, and so does GoString.
func (k *Keys) String() string { return redacted }

func (k *Keys) GoString() string { return redacted }

// mac returns the HMAC of the concatenated parts. All parts except the last have a fixed size or end with a zero byte, so
// that two different lists of parts never have the same concatenation.
func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// ring consists of keys, and of the IDs that all grants have with each key.
type ring struct {
	*Keys
	ids [][][]byte // ids[k][g] is the ID of grant g with key k
}

// grantID returns the ID of a grant in the capabilities that the key signs. Without the key, the ID reveals nothing
// about the grant.
func grantID(key []byte, g *grant) []byte {
	return mac(key, []byte("grant\x00"), []byte(g.kind), []byte{0}, []byte(g.name), []byte{0}, g.binding[:])[:idSize]
}

// current returns the ring of the current keys. It computes the IDs again only if the keys have changed.
func (c *Control) current() *ring {
	k := c.keys()
	if r := c.ring.Load(); r != nil && r.Keys == k {
		return r
	}
	r := &ring{Keys: k}
	for _, key := range k.keys {
		var ids [][]byte
		for _, g := range c.grants {
			ids = append(ids, grantID(key, g))
		}
		r.ids = append(r.ids, ids)
	}
	c.ring.Store(r)
	return r
}
