package quirks

import "net/http"

// Profile describes a registry product or service: its host, the form of its repository names, and its
// settings.
type Profile struct {
	Name string
	// Registry is the host. Template is a suitable repository template for the providers of one hostname.
	Registry string
	Template string
	// Create is the project or repository that must be created before the first push. It is "" if none must
	// be created.
	Create string
	Settings
}

// opentofu lists the artifact types that GitLab accepts from a push.
var opentofu = []string{"application/vnd.opentofu.provider", "application/vnd.opentofu.provider-target", "application/vnd.opentofu.modulepkg"}

// referenced is Docker Hub's error for the deletion of a manifest that a tag or an index refers to.
var referenced = Refusal{http.StatusForbidden, "DENIED", "the manifest is still referenced"}

// Profiles returns all profiles. Their page sizes are those of the real registries.
func Profiles() []Profile {
	token := func(user string) Access { return Access{User: user, Password: "pass-w0rd", Tokens: true} }
	basic := func(user string) Access { return Access{User: user, Password: "pass-w0rd"} }
	// rest is the last part of most templates.
	const rest = "/${hostname}/${namespace}/${type}"
	return []Profile{
		{Name: "distribution", Registry: "registry.example.com", Template: "registry.example.com/providers" + rest},
		{Name: "distribution-2.8", Registry: "old.example.com", Template: "old.example.com/providers" + rest, Settings: Settings{
			Deletes: Deletes{NoDeleteTag: &Refusal{http.StatusBadRequest, "DIGEST_INVALID", "provided digest did not match uploaded content"}},
		}},
		{Name: "harbor", Registry: "harbor.example.com", Template: "harbor.example.com/providers" + rest, Create: "providers", Settings: Settings{
			Access:  Access{User: "robot$providers+ci", Password: "pass-w0rd", Tokens: true, Harbor: true},
			Content: Content{MustExist: true, Projects: true, ImmutableHolds: true},
			Deletes: Deletes{
				NoDeleteTag:     &Refusal{http.StatusBadRequest, "UNSUPPORTED", "unsupported digest: invalid checksum digest format"},
				NoDeleteChild:   &Refusal{http.StatusPreconditionFailed, "VIOLATE_FOREIGN_KEY_CONSTRAINT", "the deleting artifact is referenced by others"},
				DeletesChildren: true,
			},
		}},
		{Name: "ghcr", Registry: "ghcr.io", Template: "ghcr.io/acme/providers" + rest, Settings: Settings{
			Access:  Access{User: "acme", Password: "pass-w0rd", Tokens: true, DeniedForAbsent: true},
			Paging:  Paging{PageSize: 100},
			Deletes: Deletes{NoDelete: true},
			Uploads: Uploads{MaxChunk: 4 << 20}, NoReferrers: true, NoCatalog: true,
		}},
		{Name: "ecr", Registry: "123456789012.dkr.ecr.eu-west-1.amazonaws.com", Template: "123456789012.dkr.ecr.eu-west-1.amazonaws.com/providers/${namespace}/${type}",
			Create: "providers/acme/widget", Settings: Settings{
				Access:  basic("AWS"),
				Paging:  Paging{PageSize: 100, MaxN: 1000, PlainText: true},
				Content: Content{MustExist: true, MediaTypeRequired: true},
				Uploads: Uploads{NoEmpty: true, NoMount: true},
			}},
		{Name: "acr", Registry: "acme.azurecr.io", Template: "acme.azurecr.io/providers" + rest, Settings: Settings{
			Access: Access{User: "00000000-0000-0000-0000-000000000000", Password: "refresh-t0ken", Tokens: true, RefreshOnly: true},
			Paging: Paging{PageSize: 100, MaxN: 1000, Capped: true}, NoCatalog: true,
			// Azure Container Registry deletes tags only with its own API.
			Deletes: Deletes{NoDeleteTag: &unsupported},
		}},
		{Name: "gar", Registry: "europe-docker.pkg.dev", Template: "europe-docker.pkg.dev/acme-project/providers" + rest, Create: "acme-project/providers", Settings: Settings{
			Access: token("oauth2accesstoken"), Content: Content{MustExist: true},
			Deletes: Deletes{NoDeleteTagged: &Refusal{http.StatusBadRequest, "GOOGLE_MANIFEST_DANGLING_TAG", "Manifest is still referenced by tag"}},
			HTML:    func(r *http.Request) bool { return r.URL.Path == "/v2/_catalog" },
		}},
		{Name: "quay", Registry: "quay.io", Template: "quay.io/acme" + rest, Settings: Settings{
			Access: Access{User: "acme+ci", Password: "pass-w0rd", Tokens: true, Terse: true},
			Paging: Paging{PageSize: 100, Opaque: true}, NoCatalog: true,
		}},
		{Name: "gitlab", Registry: "registry.gitlab.com", Template: "registry.gitlab.com/acme/providers/${namespace}/${type}", Settings: Settings{
			Access: token("gitlab-ci-token"), Paging: Paging{PageSize: 100}, Content: Content{Allowed: opentofu}, NoCatalog: true,
			Deletes: Deletes{NoDeleteChild: &Refusal{http.StatusConflict, "MANIFEST_REFERENCED_IN_LIST", "manifest referenced by a manifest list"}},
		}},
		{Name: "dockerhub", Registry: "docker.io", Template: "docker.io/acme/${namespace}-${type}", Settings: Settings{
			Access:   token("acme"),
			Content:  Content{NameParts: 2, MediaTypeRequired: true, RedirectBlobs: true},
			Deletes:  Deletes{NoDeleteTag: &unsupported, NoDeleteTagged: &referenced, NoDeleteChild: &referenced},
			Paging:   Paging{PageSize: 100, Link: LinkAbsolute},
			EveryNth: 11, NoCatalog: true,
		}},
		{Name: "artifactory", Registry: "acme.jfrog.io", Template: "acme.jfrog.io/providers-local" + rest, Create: "providers-local", Settings: Settings{
			Access:  Access{User: "ci", Password: "pass-w0rd", PingDenied: true},
			Paging:  Paging{PageSize: 100, Link: LinkOtherPath, Unordered: true},
			Content: Content{MustExist: true, RedirectBlobs: true},
		}},
	}
}
