package embedded

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"

	"github.com/opencontainers/go-digest"
)

// Garbage is content of the registry that no tag reaches.
type Garbage struct {
	Bytes        int64    `json:"bytes"`        // of the blobs, uploads and temporary files
	Manifests    int      `json:"manifests"`    // the number of manifests and indexes, counted for each repository
	Blobs        int      `json:"blobs"`        // the number of blobs that no repository needs; manifests are blobs, too
	Files        int      `json:"files"`        // the number of files of interrupted uploads and writes
	Repositories []string `json:"repositories"` // the names of the repositories without tags
}

// sweepPlan lists the files that a garbage collection removes. Its lists are removed in the order
// of the fields.
type sweepPlan struct {
	// revisions are the links to manifests. A manifest is in an earlier list than the manifests that
	// it names, so no crash leaves a manifest without its content.
	revisions [][]storedFile
	links     []storedFile // other links
	blobs     []storedFile
	files     []storedFile // of interrupted uploads and writes
	dirs      []string     // folders that are empty after the removals above; each folder follows the folders in it

	garbage Garbage
}

// plan decides which files of a scan to remove.
func (s *storageScan) plan(reached *marks, manifests map[digest.Digest]gcManifest) *sweepPlan {
	p := &sweepPlan{}
	p.garbage.Repositories = []string{}
	revisions := map[string]map[digest.Digest]storedFile{}
	used := map[string]bool{} // folders of files that stay
	for _, f := range s.files {
		kept := reached.manifests[f.repository]
		_, named := s.tags[f.repository][f.tag]
		switch {
		case f.kind == revisionLink && !kept[f.digest]:
			add(revisions, f.repository, f.digest, f)
			p.garbage.Manifests++
		case f.kind == layerLink && !reached.layers[f.repository][f.digest],
			f.kind == tagIndexLink && (!named || !kept[f.digest]):
			p.links = append(p.links, f)
		case f.kind == blobFile && !reached.blobs[f.digest]:
			p.blobs = append(p.blobs, f)
			p.garbage.Bytes += f.size
			p.garbage.Blobs++
		case f.kind == uploadFile, f.kind == temporaryFile:
			p.files = append(p.files, f)
			p.garbage.Bytes += f.size
			p.garbage.Files++
		default:
			for dir := path.Dir(f.path); dir != "." && !used[dir]; dir = path.Dir(dir) {
				used[dir] = true
			}
		}
	}
	for _, links := range revisions {
		p.addRevisions(links, manifests)
	}
	for _, dir := range slices.Backward(s.dirs) {
		if used[dir] || dir == "repositories" || dir == "blobs" {
			continue
		}
		p.dirs = append(p.dirs, dir)
		if path.Base(dir) == "_manifests" {
			p.garbage.Repositories = append(p.garbage.Repositories, path.Dir(dir)[len("repositories/"):])
		}
	}
	slices.Sort(p.garbage.Repositories)
	return p
}

// addRevisions adds the links to manifests of one repository to the plan. The first list has the manifests that no other
// garbage names. Each further list has those that only the manifests in earlier lists name.
func (p *sweepPlan) addRevisions(links map[digest.Digest]storedFile, manifests map[digest.Digest]gcManifest) {
	parents := map[digest.Digest]int{}
	for d := range links {
		for _, child := range manifests[d].manifests {
			parents[child]++
		}
	}
	var next []digest.Digest
	for d := range links {
		if parents[d] == 0 {
			next = append(next, d)
		}
	}
	for round := 0; len(next) > 0; round++ {
		if round == len(p.revisions) {
			p.revisions = append(p.revisions, nil)
		}
		var after []digest.Digest
		for _, d := range next {
			p.revisions[round] = append(p.revisions[round], links[d])
			for _, child := range manifests[d].manifests {
				if parents[child]--; parents[child] == 0 && links[child].path != "" {
					after = append(after, child)
				}
			}
		}
		next = after
	}
}

// sweep carries out a plan, and returns what it has freed. The removals of each list of manifests are on disk before the
// next list is begun.
func (f *storageFolder) sweep(ctx context.Context, p *sweepPlan) (freed Garbage, err error) {
	freed.Repositories = []string{}
	for _, round := range p.revisions {
		changed := map[string]bool{}
		for _, link := range round {
			if err := f.removeFile(ctx, link); err != nil {
				return freed, err
			}
			freed.Manifests++
			dir := path.Dir(link.path)
			changed[path.Dir(dir)] = true
			if isLeft, err := f.removeFolder(dir); err != nil {
				return freed, err
			} else if isLeft {
				changed[dir] = true
			}
		}
		for dir := range changed {
			if err := f.sync(dir); err != nil {
				return freed, err
			}
		}
	}
	for _, link := range p.links {
		if err := f.removeFile(ctx, link); err != nil {
			return freed, err
		}
	}
	for _, list := range []struct {
		files []storedFile
		freed *int
	}{{p.blobs, &freed.Blobs}, {p.files, &freed.Files}} {
		for _, file := range list.files {
			if err := f.removeFile(ctx, file); err != nil {
				return freed, err
			}
			*list.freed++
			freed.Bytes += file.size
		}
	}
	for _, dir := range p.dirs {
		if ctx.Err() != nil {
			return freed, context.Cause(ctx)
		}
		if _, err := f.removeFolder(dir); err != nil {
			return freed, err
		}
	}
	freed.Repositories = p.garbage.Repositories
	return freed, nil
}

func (f *storageFolder) removeFile(ctx context.Context, file storedFile) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return f.remove(file.path)
}

// removeFolder removes a folder, unless there is still a file in it. NFS, for example, keeps the files that a reader has
// open.
func (f *storageFolder) removeFolder(dir string) (isLeft bool, err error) {
	err = f.remove(dir)
	if errors.Is(err, fs.ErrExist) { // it is not empty
		return true, nil
	}
	return false, err
}
