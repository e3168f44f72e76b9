package howto

import "fmt"

// Exemption is a block of a how-to that cannot be run.
type Exemption struct{ Page, FirstLine, Reason string }

// maxExempt is the maximum number of exempt blocks and of pages that are run with a replacement.
const maxExempt = 5

// Exempt lists the blocks that cannot be run. The text block after such a block is exempt too.
var Exempt = []Exemption{
	{"deployment", `docker build -f deploy/container/Containerfile --build-arg VERSION="$(tools/version.sh)" \`, "no machine of the tests has Docker; deploy.TestContainerFile checks the file"},
	{"deployment", "docker compose -f deploy/compose/compose.yaml up --build --wait", "no machine of the tests has Docker; deploy.TestCompose checks the file"},
	{"terragrunt", "terragrunt run --all --provider-cache -- init", "Terragrunt cannot be built from the module proxy"},
}

// Other is how tests run the blocks of a page without a [Run].
type Other struct {
	Tests    []string // each as package.TestName
	Replaced string   // what the tests replace, and why; "" if nothing
}

// RunBy lists the pages that tests run in another way.
var RunBy = map[string]Other{
	"deployment": {
		Tests:    []string{"deploy.TestDeploymentContainer", "deploy.TestDeploymentUnits", "deploy.TestDeploymentValues"},
		Replaced: "helm renders the chart, systemctl and login are stubs, and the container's files are only checked: no machine of the tests has a cluster or Docker, or may install services",
	},
	"ci": {
		Tests:    []string{"deploy.TestExamplesOfActions", "deploy.TestGitLabPushes", "deploy.TestGitLabInstallsProviders"},
		Replaced: "the workflows are linted and the scripts of their steps run, because GitHub's runners are not to be had; gitlab-ci-local runs GitLab's jobs without their image",
	},
	"troubleshooting": {Tests: []string{"e2e.TestMessagesOfClients"}},
}

// CheckBlocks returns what is wrong with the blocks of pages, and with their exemptions. pages maps names to texts. In a
// page of RunBy, it looks for exempt blocks only.
func CheckBlocks(pages map[string]string, exempt []Exemption) (out []string) {
	for page, text := range pages {
		if _, err := parse(page, text, exempt); err != nil && RunBy[page].Tests == nil {
			out = append(out, fmt.Sprintf("%s: %v", page, err))
		}
	}
	n := len(exempt)
	for _, other := range RunBy {
		if other.Replaced != "" {
			n++
		}
	}
	if n > maxExempt {
		out = append(out, fmt.Sprintf("%d blocks or pages are exempt, more than %d", n, maxExempt))
	}
	for _, e := range exempt {
		blocks, _ := parse(e.Page, pages[e.Page], []Exemption{e})
		found := false
		for _, b := range blocks {
			found = found || b.kind == exempted
		}
		if !found || e.Reason == "" {
			out = append(out, fmt.Sprintf("the exemption %+v matches no block, or has no reason", e))
		}
	}
	return out
}
