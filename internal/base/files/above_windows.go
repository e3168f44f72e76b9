package files

import (
	"os"

	"golang.org/x/sys/windows"
)

// sameFileSystem returns true, because the folders above a folder are on its drive. Mounted folders
// are rare, and their files are checked by isOwn all the same.
func sameFileSystem(_, _ os.FileInfo) bool { return true }

func isOwn(name string, _ os.FileInfo) (bool, error) {
	sd, err := windows.GetNamedSecurityInfo(name, windows.SE_FILE_OBJECT, windows.OWNER_SECURITY_INFORMATION)
	if err != nil {
		return false, err
	}
	owner, _, err := sd.Owner()
	if err != nil {
		return false, err
	}
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return false, err
	}
	return owner.Equals(user.User.Sid) || owner.IsWellKnown(windows.WinBuiltinAdministratorsSid) || owner.IsWellKnown(windows.WinLocalSystemSid), nil
}
