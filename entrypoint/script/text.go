//go:build linux

package script

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// textFd is the descriptor by which a shell gets its script, and textPath its name there.
const (
	textFd   = 3
	textPath = "/proc/self/fd/3"
)

// prologue goes before the first line of a script, on the same line so that the shell counts lines right. The shell reads
// the script through a descriptor of its own, that it keeps to itself; this one would be passed on to all that it starts.
const prologue = "exec 3<&-; "

// ErrWrongText says that a script came complete, but isn't the one that was announced.
var ErrWrongText = errors.New("the script has another SHA-256 than its header says")

// Receive reads a script of so many bytes into memory that is no file system's: it vanishes when PID 1 and the shell have
// closed it, and can't be changed by then. A script that ends early or has another digest is an error.
func Receive(from io.Reader, size int64, digest string) (*os.File, error) {
	file, err := memory()
	if err != nil {
		return nil, fmt.Errorf("get memory for the script: %w", err)
	}
	if err := fill(file, from, size, digest); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func fill(file *os.File, from io.Reader, size int64, digest string) error {
	if _, err := io.WriteString(file, prologue); err != nil {
		return fmt.Errorf("keep the script: %w", err)
	}
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(file, hash), from, size); err != nil {
		return fmt.Errorf("receive the script of %d bytes: %w", size, err)
	}
	if hex.EncodeToString(hash.Sum(nil)) != digest {
		return ErrWrongText
	}
	const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal the script: %w", err)
	}
	return nil
}

func memory() (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("script", flags|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("script", flags)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "script"), nil
}
