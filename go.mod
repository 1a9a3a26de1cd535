module github.com/flinkndb/flinkndb

go 1.26
