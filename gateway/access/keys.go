package access

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/ocibridge/ocibridge/internal/base/hint"
)

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

// grantID returns the ID of a grant in capabilities of the key. Without the key, it reveals nothing about the grant.
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
