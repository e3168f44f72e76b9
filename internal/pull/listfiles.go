package pull

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ocibridge/ocibridge/gateway/catalog"
	"github.com/ocibridge/ocibridge/internal/privatefolder"
	"github.com/ocibridge/ocibridge/provider"
)

// listFile is the JSON of a list on disk. The file begins with a line that has the SHA-256
// of the JSON in hexadecimal.
type listFile struct {
	Provider  string       `json:"provider"`
	Confirmed time.Time    `json:"confirmed"`
	Versions  []listedFile `json:"versions"`
	Warnings  []string     `json:"warnings,omitempty"`
	// Seen has all listed versions, whether or not the scope allows them; nil without a
	// cooldown.
	Seen map[string]time.Time `json:"seen,omitempty"`
}

type listedFile struct {
	Version   string   `json:"version"`
	Protocols []string `json:"protocols,omitempty"`
	Platforms []string `json:"platforms,omitempty"`
}

func (p *Puller) listPath(a provider.Address) string {
	sum := sha256.Sum256([]byte(a.Path()))
	name := hex.EncodeToString(sum[:16])
	return filepath.Join(p.o.Directory, name[:2], name[2:])
}

// keepList saves a list on disk.
func (p *Puller) keepList(a provider.Address, l *list) {
	if p.o.Directory == "" || p.isRetired() {
		return // the next Puller has other settings, and saves its own lists
	}
	if err := p.writeList(a, l); err != nil {
		p.o.Log.Warn("what an origin offers cannot be kept on disk", "provider", a.String(), "err", err)
	}
}

func (p *Puller) writeList(a provider.Address, l *list) error {
	path := p.listPath(a)
	if len(l.offers) == 0 && l.seen == nil {
		// A withdrawn provider must not be served stale after a restart.
		if err := p.folder.replace(path, 0); err != nil {
			return err
		}
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	out := listFile{Provider: a.Path(), Confirmed: l.at, Warnings: l.warnings}
	for _, o := range l.offers {
		f := listedFile{Version: o.Version.String(), Protocols: o.Protocols}
		for _, platform := range o.Platforms {
			f.Platforms = append(f.Platforms, platform.String())
		}
		out.Versions = append(out.Versions, f)
	}
	if l.seen != nil {
		out.Seen = map[string]time.Time{}
		for v, at := range l.seen {
			out.Seen[v.String()] = at
		}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	body = append(fmt.Appendf(nil, "%x\n", sha256.Sum256(body)), body...)
	if err := p.folder.replace(path, int64(len(body))); err != nil {
		return err
	}
	return privatefolder.Write(path, body)
}

// loadList returns the saved list, for the cache. It is only served stale. A file that cannot be read still shows that
// the provider is not new.
func (p *Puller) loadList(a provider.Address) (listAnswer, bool) {
	if p.o.Directory == "" {
		return listAnswer{}, false
	}
	l, err := p.readList(a)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !p.folder.isFull():
		return listAnswer{}, false
	case errors.Is(err, fs.ErrNotExist):
		l = &list{seen: map[provider.Version]time.Time{}} // its file may not have fitted
	case err != nil:
		p.o.Log.Warn("what an origin offered cannot be read from disk", "provider", a.String(), "err", err)
		l = &list{seen: map[provider.Version]time.Time{}} // a cooldown begins again
	}
	if l.at.After(time.Now()) {
		l.at = time.Time{} // the clock was wrong when it was written
	}
	l.weigh()
	answer := p.newListAnswer(l)
	answer.TTL = 0
	return answer, true
}

var errDamaged = errors.New("the file is damaged")

func (p *Puller) readList(a provider.Address) (*list, error) {
	f, err := os.Open(p.listPath(a))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxListFile))
	if err != nil {
		return nil, err
	}
	sum, body, _ := bytes.Cut(data, []byte("\n"))
	var in listFile
	if string(sum) != fmt.Sprintf("%x", sha256.Sum256(body)) || json.Unmarshal(body, &in) != nil || in.Provider != a.Path() {
		return nil, errDamaged
	}
	out := &list{at: in.Confirmed, warnings: in.Warnings}
	if in.Seen != nil {
		out.seen = map[provider.Version]time.Time{}
	}
	for text, at := range in.Seen {
		v, err := provider.ParseVersion(text)
		if err != nil {
			return nil, errDamaged
		}
		out.seen[v] = at
	}
	policy := p.o.Policy(a)
	for _, f := range in.Versions {
		v, err := provider.ParseVersion(f.Version)
		if err != nil {
			return nil, errDamaged
		}
		if !p.o.Scope.Versions.IsZero() && !p.o.Scope.Versions.Has(v) {
			continue
		}
		o := catalog.Offer{Version: v, Protocols: f.Protocols, Signed: !policy.AllowUnsigned || policy.Pins()}
		for _, text := range f.Platforms {
			platform, err := provider.ParsePlatform(text)
			if err != nil {
				return nil, errDamaged
			}
			o.Platforms = append(o.Platforms, platform)
		}
		out.offers = append(out.offers, o)
	}
	return out, nil
}
