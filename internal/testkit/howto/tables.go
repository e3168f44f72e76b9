package howto

import "fmt"

// Exemption is a block of a how-to that cannot be run.
type Exemption struct{ Page, FirstLine, Reason string }

// maxExempt is the maximum length of Exempt.
const maxExempt = 5

// Exempt lists the blocks that cannot be run. The text block after such a block is exempt too.
var Exempt = []Exemption{
	{"terragrunt", "terragrunt run --all --provider-cache -- init", "Terragrunt cannot be built from the module proxy"},
}

// RunBy maps pages to tests that run their blocks in another way. The form of a test is package.TestName.
var RunBy = map[string]string{
	"ci":              "deploy.TestExamplesOfActions", // and TestGitLabPushes, TestGitLabInstallsProviders
	"troubleshooting": "e2e.TestMessagesOfClients",
}

// Pending lists the pages with blocks that no test runs yet. Of deployment, deploy.TestDeploymentValues and
// TestDeploymentUnits run the blocks for Kubernetes and systemd.
var Pending = []string{
	"deployment",
}

// CheckBlocks returns what is wrong with the blocks of pages, and with their exemptions. pages maps names to texts.
func CheckBlocks(pages map[string]string, exempt []Exemption) (out []string) {
	for page, text := range pages {
		if _, err := parse(page, text, exempt); err != nil {
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
