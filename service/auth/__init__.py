"""Authentication, scopes and quotas of callers."""
