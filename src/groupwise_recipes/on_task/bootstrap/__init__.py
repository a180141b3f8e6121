"""Pictures without labels become rows that on_task trains on, labelled by its judge."""
