package audit

const insert = `
INSERT INTO audit (id, who, action, target, result, why)
SELECT id, $1, $2, target, result, $3 FROM unnest($4::uuid[], $5::text[], $6::text[]) AS x (id, target, result)`
