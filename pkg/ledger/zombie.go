package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Zombie is the code of an attempt whose worker was gone when the sweep found it;
// the name is the seed's.
const Zombie = "ZOMBIE_RECOVERED"

// ZombieRuns tells how many of a delivery's last attempts, in a row, ended without
// their worker. Deliveries that have none are left out.
func (l *Ledger) ZombieRuns(ctx context.Context, deliveries []delivery.ID) (map[delivery.ID]int, error) {
	runs := make(map[delivery.ID]int)
	p := newPipeline()
	p.Query(zombieRuns, func(rows pgx.Rows) error {
		var id [16]byte
		var n int
		err := rows.Scan(&id, &n)
		if n > 0 {
			runs[id] = n
		}
		return err
	}, ids(deliveries))
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("count lost attempts of %d deliveries: %w", len(deliveries), err)
	}
	return runs, nil
}
