package pool

// window is how many creates may be under way at a time. It begins with one, grows by one with each that succeeds, which
// doubles it with each round trip, and begins anew after a refusal. The zero value is ready for use.
type window struct{ size int }

// run calls fn n times, as many at once as the window allows, and begins no more calls after one has failed. It returns how
// many succeeded, and the first error.
func (w *window) run(n int, fn func() error) (int, error) {
	w.size = max(w.size, 1)
	results := make(chan error)
	var first error
	begun, ended, succeeded := 0, 0, 0
	for ended < begun || first == nil && begun < n {
		for first == nil && begun < n && begun-ended < w.size {
			begun++
			go func() { results <- fn() }()
		}
		err := <-results
		ended++
		switch {
		case err == nil:
			succeeded++
			w.size = min(w.size+1, parallel)
		case first == nil:
			first = err
		}
	}
	if first != nil {
		w.size = 1
	}
	return succeeded, first
}
