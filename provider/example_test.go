package provider_test

import (
	"errors"
	"fmt"

	"github.com/ocibridge/ocibridge/provider"
)

// The error of a parser can have a hint, which says what the user can do about the error.
func ExampleParsePlatform_hint() {
	_, err := provider.ParsePlatform("Linux/amd64")
	fmt.Println(err)
	if hinted := interface{ Hint() string }(nil); errors.As(err, &hinted) {
		fmt.Println(hinted.Hint())
	}
	// Output:
	// invalid platform "Linux/amd64"
	// a platform is OS_ARCH in lower case, such as linux_amd64 or darwin_arm64
}
