package artifact

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The annotations on the manifest of a module that was fetched from its origin.
const (
	annotationLocation  = annotationPrefix + "source.location"
	annotationFolder    = annotationPrefix + "source.folder"
	annotationTree      = annotationPrefix + "source.tree"
	annotationTagObject = annotationPrefix + "source.tag-object"
	annotationZH        = annotationPrefix + "zh" // the zh: hash of the zip, next to the h1: hash of its files
)

// Provenance says where a module was fetched from. It is zero for a module that was pushed from a folder. The commit is in
// [Version.Revision].
type Provenance struct {
	// Location is the location that the registry announced, without secrets. It has at most 8 KiB.
	Location string `json:"location,omitempty"`
	// Folder is the folder of the module in the zip, with slashes; "" means the root.
	Folder string `json:"folder,omitempty"`
	// Tree and TagObject are object IDs of Git in hexadecimal: of the commit's tree, and of the annotated tag. They are ""
	// if there is none.
	Tree      string `json:"tree,omitempty"`
	TagObject string `json:"tag_object,omitempty"`
}

// IsZero reports whether the module was not fetched from an origin.
func (p Provenance) IsZero() bool { return p == Provenance{} }

const (
	maxProvenance = 8 << 10 // bytes of a location
	maxFolder     = 1024    // bytes of a folder
)

var (
	objectID = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// folderPath matches folders that stay the same in each form of a URL. Clients read the folder from a location without
	// decoding it.
	folderPath = regexp.MustCompile(`^[A-Za-z0-9._~@:+,=/-]+$`)
)

// CheckFolder returns an error if clients could not be led to a folder in a zip.
func CheckFolder(folder string) error {
	if folder == "" || len(folder) <= maxFolder && fs.ValidPath(folder) && folder != "." && folderPath.MatchString(folder) {
		return nil
	}
	return fmt.Errorf("the folder %.200q is not a path that every client reads alike", folder)
}

// check returns an error if the provenance cannot be stored.
func (p Provenance) check() error {
	switch {
	case p.IsZero():
		return nil
	case p.Location == "" || len(p.Location) > maxProvenance || !utf8.ValidString(p.Location) || strings.ContainsFunc(p.Location, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the location of a module is empty, has more than %d bytes, or has control characters", maxProvenance)
	case p.Tree != "" && !objectID.MatchString(p.Tree), p.TagObject != "" && !objectID.MatchString(p.TagObject):
		return fmt.Errorf("%.80q or %.80q is not the ID of a Git object", p.Tree, p.TagObject)
	}
	return CheckFolder(p.Folder)
}

// annotate adds the provenance of a version, and the zh: hash of its zip, to the annotations of its manifest.
func (p Provenance) annotate(annotations map[string]string, zip *Package) {
	if p.IsZero() {
		return
	}
	annotations[annotationZH] = zip.ZipHash().String()
	for key, value := range map[string]string{annotationLocation: p.Location, annotationFolder: p.Folder, annotationTree: p.Tree, annotationTagObject: p.TagObject} {
		if value != "" {
			annotations[key] = value
		}
	}
}

// provenanceOf reads the provenance from the annotations of a manifest. It ignores an invalid provenance, except for an invalid
// folder, because clients would be led to another one.
func provenanceOf(annotations map[string]string) (Provenance, error) {
	p := Provenance{annotations[annotationLocation], annotations[annotationFolder], annotations[annotationTree], annotations[annotationTagObject]}
	if err := CheckFolder(p.Folder); err != nil {
		return Provenance{}, err
	}
	if p.check() != nil {
		return Provenance{Folder: p.Folder}, nil
	}
	return p, nil
}
