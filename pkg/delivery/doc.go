// Package delivery is the domain: what a delivery is, which states it may be
// in, which moves are legal, what one attempt can end with, and the wire forms
// of the requests that start it and the events that tell of it.
//
// It decides nothing about time, storage or transport: it is pure, it starts no
// goroutine, and a fault in its input is an error that names the field.
//
//	          accept
//	            |
//	            v        lease (a queue row, no version)
//	        pending ----------------------.
//	         |  ^                         v
//	         |  |                      (sending)
//	 cancel  |  | operator                |
//	 expire  |  |       .-----------------+----------------+-------------.
//	         v  |       v                 v                v             v
//	cancelled expired  sent   retry <-> (sending)       held        failed / dead
//
// The table of legal moves is in state.go; a test walks it.
package delivery
