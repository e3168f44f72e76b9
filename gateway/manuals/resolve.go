package manuals

import (
	"path"
	"strings"

	"github.com/ocibridge/ocibridge/internal/registries/moduledoc"
)

// resolve returns the path of the part to which a link in another part goes: to the folder of the part, or to its README.
func (m *Module) resolve(from, to string) (string, bool) {
	to, _, _ = strings.Cut(to, "#")
	to, _, _ = strings.Cut(to, "?")
	if to == "" || strings.HasPrefix(to, "/") {
		return "", false
	}
	at := path.Join("/", from, to)
	if moduledoc.IsReadme(path.Base(at)) {
		at = path.Dir(at)
	}
	at = strings.TrimPrefix(at, "/")
	return at, m.Part(at) != nil
}
