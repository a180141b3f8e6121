"""Group QC: pass or fail a group of inspection photos from sparse labels."""
