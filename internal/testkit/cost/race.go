//go:build race

package cost

const underRace = true
