package howto

import "fmt"

// Exemption is a block of a how-to that cannot be run.
type Exemption struct{ Page, FirstLine, Reason string }

// maxExempt is the maximum length of Exempt.
const maxExempt = 5

// Exempt lists the blocks that cannot be run. The text block after such a block is exempt too.
var Exempt = []Exemption{
	{"deployment", `docker build -f deploy/container/Containerfile --build-arg VERSION="$(git describe --tags --always)" \`, "no machine of the tests has Docker; deploy.TestContainerFile checks the file"},
	{"deployment", "docker compose -f deploy/compose/compose.yaml up --build --wait", "no machine of the tests has Docker; deploy.TestCompose checks the file"},
	{"terragrunt", "terragrunt run --all --provider-cache -- init", "Terragrunt cannot be built from the module proxy"},
}

// RunBy maps pages to tests that run their blocks in another way. The form of a test is package.TestName.
var RunBy = map[string]string{
	"deployment":      "deploy.TestDeploymentUnits",   // and TestDeploymentValues, with the real helm
	"ci":              "deploy.TestExamplesOfActions", // and TestGitLabPushes, TestGitLabInstallsProviders
	"troubleshooting": "e2e.TestMessagesOfClients",
}

// CheckBlocks returns what is wrong with the blocks of pages, and with their exemptions. pages maps names to texts. In a
// page of RunBy, it looks for exempt blocks only.
func CheckBlocks(pages map[string]string, exempt []Exemption) (out []string) {
	for page, text := range pages {
		if _, err := parse(page, text, exempt); err != nil && RunBy[page] == "" {
			out = append(out, fmt.Sprintf("%s: %v", page, err))
		}
	}
	if len(exempt) > maxExempt {
		out = append(out, fmt.Sprintf("%d blocks are exempt, more than %d", len(exempt), maxExempt))
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
