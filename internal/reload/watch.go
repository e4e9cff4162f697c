// Package reload notices when configuration files change on disk: a write in place, another file renamed over, and the
// swapped links of a ConfigMap's or Secret's volume.
//
// It only says when to look; it doesn't know what is in the files, and it refuses to decide whether a change is good.
package reload

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// settleFor is how long nothing may happen before files are read: a writer truncates first and writes then, and an
	// editor makes several files.
	settleFor = 200 * time.Millisecond
	// settleAtMost bounds that: in a folder that others write to all the time nothing ever settles.
	settleAtMost = 2 * time.Second
	// lookEvery is how often files are looked at anyway, for file systems that tell nothing (NFS, some FUSE).
	lookEvery = 30 * time.Second
)

// State is what the files held at a time, as a hash. Two equal states mean that nothing has to be loaded again.
type State [sha256.Size]byte

// StateOf reads the files. One that can't be read has a state too: that of its error.
func StateOf(files []string) State {
	h := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			data = []byte(err.Error())
		}
		sum := sha256.Sum256(data)
		_, _ = h.Write(sum[:]) // never fails
	}
	return State(h.Sum(nil))
}

// Watch calls changed whenever the files' state is another one than before, first than since, and whenever hurry has
// something; it returns when ctx ends. Calls don't overlap.
func Watch(ctx context.Context, files []string, since State, hurry <-chan os.Signal, log *slog.Logger, changed func(hurried bool)) {
	w := watcher{files: files, last: since, log: log, changed: changed, watched: map[string]bool{}}
	var events chan fsnotify.Event
	var errs chan error
	if notify, err := fsnotify.NewWatcher(); err != nil {
		log.Warn("changes of the configuration file are noticed late: the system can't watch it", "every", lookEvery, "error", err)
	} else {
		defer notify.Close()
		w.notify, events, errs = notify, notify.Events, notify.Errors
	}
	anyway := time.NewTicker(lookEvery)
	defer anyway.Stop()
	w.follow()
	settled := time.After(0) // a change before the watch began
	var first time.Time      // of the events that haven't settled; zero = none
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			if first.IsZero() {
				first = time.Now()
			}
			settled = time.After(min(settleFor, time.Until(first.Add(settleAtMost))))
		case err := <-errs:
			log.Warn("the configuration file's watch has lost something; it is looked at now", "error", err)
			settled = time.After(0)
		case <-settled:
			first = time.Time{}
			w.look(false)
		case <-anyway.C:
			w.look(false)
		case <-hurry:
			w.look(true)
		}
	}
}

type watcher struct {
	files   []string
	last    State
	log     *slog.Logger
	changed func(hurried bool)
	notify  *fsnotify.Watcher // nil where the system can't
	watched map[string]bool
}

// look compares the files with what they held last.
func (w *watcher) look(hurried bool) {
	w.follow()
	now := StateOf(w.files)
	if now == w.last && !hurried {
		return
	}
	w.last = now
	w.changed(hurried)
}

// follow watches the folders of the files, and of what they are links to: a file itself can be replaced, and then its watch
// would follow the old one. Links may lead elsewhere by now, so it is done again with each look.
func (w *watcher) follow() {
	if w.notify == nil {
		return
	}
	folders := map[string]bool{}
	for _, file := range w.files {
		folders[filepath.Dir(file)] = true
		if target, err := filepath.EvalSymlinks(file); err == nil {
			folders[filepath.Dir(target)] = true
		}
	}
	for folder := range w.watched {
		if !folders[folder] {
			_ = w.notify.Remove(folder) // it may be gone, and its watch with it
			delete(w.watched, folder)
		}
	}
	for folder := range folders {
		// Again, too: a folder that was removed and made anew has lost its watch, and nothing would tell.
		if err := w.notify.Add(folder); err != nil {
			if w.watched[folder] || !w.failed(folder) {
				w.log.Warn("a folder can't be watched; changes in it are noticed late", "folder", folder, "every", lookEvery, "error", err)
			}
			w.watched[folder] = false
			continue
		}
		w.watched[folder] = true
	}
}

// failed says whether it was said already that a folder can't be watched.
func (w *watcher) failed(folder string) bool {
	watched, known := w.watched[folder]
	return known && !watched
}
